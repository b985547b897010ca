# Planted bugs around the simulator (README.md), all in `make test`; some by `make plants-outer`.
# SPDX-License-Identifier: Apache-2.0

# How a variant compiles and links, for tests/plants/plant: compiler, flags, linking, libraries.
OUTER_FLAGS := $(O)/plain/plants.flags
.PHONY: plants-outer
ifneq ($(filter test-run plants-outer mutate,$(MAKECMDGOALS)),)
$(shell mkdir -p $(O)/plain)
$(file >$(OUTER_FLAGS),$(CC_plain))
$(file >>$(OUTER_FLAGS),$(FLAGS) $(FLAGS_plain) $(CPPFLAGS) $(CFLAGS))
$(file >>$(OUTER_FLAGS),$(LINK) $(LDFLAGS))
$(file >>$(OUTER_FLAGS),$(LIBS_tierd) $(CMOCKA_LIBS) -lm)
endif

# What they link anew; and readers in steps as they are installed, too (step.h).
ifneq ($(filter test-run,$(MAKECMDGOALS)),)
OUTER_NEEDS := $(shell tests/plants/plant --tests)
endif
OUTER_TESTS := $(foreach n,1 2 3,$(O)/plain/plants-outer-$n)
$(OUTER_TESTS): $(O)/plain/plants-outer-%: tests/plants/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/plants/plant %s --part %s/%s\n' \
		$(O) $* $(words $(OUTER_TESTS)) >$@ && chmod +x $@

test-run: $(OUTER_TESTS) $(O)/plain/tests/unit/test_libtier_steps \
          $(call objects,plain,$(OUTER_NEEDS) tests/fuzz/host.c \
            $(SRC_testlib))
EXTRA_TESTS += $(OUTER_TESTS) $(O)/plain/tests/unit/test_libtier_steps

plants-outer: ##   plant bugs around the core (PLANTS='NAME...'): a test must fail of each
	@tests/plants/plant $(O) $(PLANTS)
plants-outer: all-plain tests-plain $(O)/plain/crash
