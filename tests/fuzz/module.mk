# Fuzz targets (README.md): a variant of its own, made with clang for libFuzzer, and for each target
# a second program in which one line of the code under test was removed (canary/NAME.sed), which a
# short run must find. Without clang and its libFuzzer everything here is left out.
# SPDX-License-Identifier: Apache-2.0

FUZZ_SECONDS ?= 60
FUZZ_NAMES := $(sort $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c)))

CC_fuzz    := clang
FLAGS_fuzz := -O1 -g1 \
              -fsanitize=fuzzer-no-link,address,undefined \
              -fno-sanitize-recover=all     # the first finding ends the run

# tests/fuzz/heap.c and main.c say what the wrapped functions are for.
FUZZ_WRAP  := calloc malloc realloc aligned_alloc free crc32_iscsi clock_gettime
LINK_fuzz  := -fsanitize=fuzzer $(FUZZ_WRAP:%=-Wl,--wrap=%)

# What follows costs a look at the compiler and the canaries: only where it is wanted.
ifneq ($(filter test-run,$(MAKECMDGOALS))$(findstring fuzz,$(MAKECMDGOALS)),)

# clang may be there without its run-time libraries
HAVE_FUZZER := $(if $(HAVE_CLANG),$(shell tests/fuzz/probe))

$(eval $(call variant,fuzz))

FUZZ_SHARED := $(call objects,fuzz,tests/fuzz/main.c tests/fuzz/heap.c tests/fuzz/host.c \
                                tests/lib/areas.c tests/lib/core_shell.c)
# The recount after each step: its edges lead the search, its comparisons of sums tell it nothing.
$(call objects,fuzz,$(wildcard tierd/core/audit/audit*.c)): \
	FLAGS_fuzz += -fno-sanitize-coverage=trace-cmp
# not what is tested: no coverage is wanted of it
$(FUZZ_SHARED): FLAGS_fuzz := $(filter-out -fsanitize=fuzzer%,$(FLAGS_fuzz)) \
                              -fsanitize=address,undefined
# of the daemon around the core, what reads from outside
$(O)/fuzz/libfront.a: $(call objects,fuzz,tierd/config.c tierd/backend/mem_common.c \
                        tierd/backend/mem_limit.c \
                        $(wildcard tierd/front/*.c tierd/obs/*.c tierd/object/*.c))
FUZZ_LIBS   := $(O)/fuzz/libfront.a $(O)/fuzz/libcore.a $(O)/fuzz/libtier.a $(O)/fuzz/libbase.a

# What a target needs beside the libraries.
FUZZ_OBJECTS_trace := $(call objects,fuzz,bench/trace/trace.c)
FUZZ_OBJECTS_llama := $(call objects,fuzz,libtier/connect/llama/state.c)
FUZZ_OBJECTS_weights := $(call objects,fuzz,libtier/shim/weights.c)
FUZZ_OBJECTS_net := $(call objects,fuzz,$(wildcard tierd/net/proto*.c))
FUZZ_OBJECTS_geometry := $(call objects,fuzz,tierd/ctl/context_spec.c)

# The line after "# file:" in canary/NAME.sed names the source that it changes.
canary_source = $(shell sed -n 's/^\# file: //p' tests/fuzz/canary/$1.sed)

fuzz_link = @mkdir -p $(@D) && echo '  LINK  $@' && $(CC_fuzz) $(FLAGS) $(FLAGS_fuzz) $(CFLAGS) \
	$(LINK) $(LDFLAGS) $(LINK_fuzz) -o $@ $(filter %.o,$^) \
	-Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_tierd)

# $(call fuzz_target,NAME)
define fuzz_target
canary_source_$1 := $(call canary_source,$1)
$(O)/fuzz/fuzz_$1: $(call objects,fuzz,tests/fuzz/fuzz_$1.c) $(FUZZ_SHARED) $(FUZZ_LIBS) \
                   $(FUZZ_OBJECTS_$1)
	$$(fuzz_link)
$(O)/fuzz/canary_$1: $(call objects,fuzz,tests/fuzz/fuzz_$1.c) $(O)/fuzz/canary/$1.o \
                     $(filter-out $(call objects,fuzz,$(call canary_source,$1)), \
                       $(FUZZ_OBJECTS_$1)) $(FUZZ_SHARED) $(FUZZ_LIBS)
	$$(fuzz_link)
$(O)/fuzz/canary/$1.o: tests/fuzz/canary/$1.sed $$(canary_source_$1) $(O)/config.mk
	@tests/fuzz/plant $$< $(O)/fuzz/canary/$1.c
	@echo '  CC    $$@'
	@$$(CC_fuzz) $$(FLAGS) -w $$(FLAGS_fuzz) $$(CPPFLAGS) $$(CFLAGS) -MMD -MP -c \
		-o $$@ $(O)/fuzz/canary/$1.c
-include $(O)/fuzz/canary/$1.d
endef
$(foreach n,$(FUZZ_NAMES),$(eval $(call fuzz_target,$n)))
-include $(patsubst %.c,$(O)/fuzz/obj/%.d,$(wildcard tests/fuzz/*.c) tests/lib/areas.c \
                                             tests/lib/core_shell.c)

FUZZ_PROGRAMS := $(FUZZ_NAMES:%=$(O)/fuzz/fuzz_%) $(FUZZ_NAMES:%=$(O)/fuzz/canary_%)

.PHONY: fuzz fuzz-build fuzz-short
fuzz-build: $(if $(HAVE_FUZZER),$(FUZZ_PROGRAMS))

fuzz: fuzz-build ##       fuzz each target for FUZZ_SECONDS=60 (FUZZ='ring config': these)
	@BUILD=$(O)/fuzz tests/fuzz/run long '$(FUZZ_SECONDS)' $(or $(FUZZ),$(FUZZ_NAMES))

FUZZ_PARTS := 1 2 3
FUZZ_TESTS := $(FUZZ_PARTS:%=$(O)/fuzz/short-%)
$(FUZZ_TESTS): $(O)/fuzz/short-%: tests/fuzz/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nBUILD=$$(dirname "$$0") exec tests/fuzz/short.sh %s/%s\n' \
		$* $(words $(FUZZ_PARTS)) >$@ && chmod +x $@

fuzz-short: fuzz-build $(FUZZ_TESTS)
	@$(RUN) $(FUZZ_TESTS)

test-run: fuzz-build $(FUZZ_TESTS)
EXTRA_TESTS += $(FUZZ_TESTS)

endif
