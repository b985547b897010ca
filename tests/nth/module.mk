# Failing allocations (nth.h): programs that count their own, and a library that counts a daemon's.
# Built in the variant with a leak checker where there is one.
# SPDX-License-Identifier: Apache-2.0

NTH_VARIANT := $(if $(HAVE_ASAN),asan,plain)
NTH_TESTS   := $(patsubst %.c,$(O)/$(NTH_VARIANT)/%,$(wildcard tests/nth/test_*.c))
NTH_FILL    := $(O)/$(NTH_VARIANT)/tests/nth/fill
NTH_LIBRARY := $(O)/$(NTH_VARIANT)/tests/nth/libnth.so
NTH_RUNS    := $(NTH_TESTS) $(addprefix $(O)/$(NTH_VARIANT):tests/nth/,names startup)
NTH_OBJECTS := $(call objects,$(NTH_VARIANT),tests/nth/nth.c tests/fuzz/host.c)

# The allocator's names are called before the sanitizer has set itself up: not instrumented.
NTH_PLAIN := -O1 -fPIC -fno-builtin
$(call objects,$(NTH_VARIANT),tests/nth/nth.c): FLAGS_$(NTH_VARIANT) := $(NTH_PLAIN)

$(NTH_TESTS): $(O)/$(NTH_VARIANT)/tests/nth/%: $(O)/$(NTH_VARIANT)/obj/tests/nth/%.o \
              $(NTH_OBJECTS) $(call objects,$(NTH_VARIANT),$(SRC_testlib)) \
              $(test_libs_$(NTH_VARIANT))
	$(link_$(NTH_VARIANT)) $(LIBS_tierd) $(CMOCKA_LIBS)
$(NTH_TESTS): private LDFLAGS += $(SHADOW_$(NTH_VARIANT))
$(NTH_FILL): $(call objects,$(NTH_VARIANT),tests/nth/fill.c) $(O)/$(NTH_VARIANT)/libtier.a
	$(link_$(NTH_VARIANT)) $(LIBS_libtier)
$(NTH_LIBRARY): $(call objects,$(NTH_VARIANT),tests/nth/nth.c)
	@mkdir -p $(@D)
	@echo '  LD    $@'
	@$(CC_$(NTH_VARIANT)) $(NTH_PLAIN) -shared $(LINK) $(LDFLAGS) -o $@ $^
-include $(patsubst %.c,$(O)/$(NTH_VARIANT)/obj/%.d,$(wildcard tests/nth/*.c) tests/fuzz/host.c)

.PHONY: nth-build nth
nth-build: $(NTH_TESTS) $(NTH_FILL) $(NTH_LIBRARY) all-$(NTH_VARIANT)
nth: nth-build ##        make each allocation fail in turn: parts, API, start-up
	@$(RUN) $(NTH_RUNS)

test-run: nth-build
EXTRA_TESTS += $(NTH_RUNS)
