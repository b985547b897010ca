# Planted bugs outside of the core (README.md): a quick part in `make test`, all by
# `make plants-outer`.
# SPDX-License-Identifier: Apache-2.0

# How a variant compiles and links, for tests/plants/plant; only where it is wanted.
ifneq ($(filter test-run plants-outer plants-flags,$(MAKECMDGOALS)),)
define plants_flags
$$(shell mkdir -p $(O)/$1)
$$(file >$(O)/$1/plants.flags,$$(CC_$1))
$$(file >>$(O)/$1/plants.flags,$$(FLAGS) $$(FLAGS_$1) $$(CPPFLAGS) $$(CFLAGS))
$$(file >>$(O)/$1/plants.flags,$$(LINK) $$(LDFLAGS))
$$(file >>$(O)/$1/plants.flags,$$(LIBS_tierd) $$(CMOCKA_LIBS) -lm)
endef
$(foreach v,plain $(if $(HAVE_TSAN),tsan),$(eval $(call plants_flags,$v)))
test-run: $(call objects,plain,$(shell tests/plants/plant --sources) $(SRC_testlib))
endif

PLANTS_OUTER := 1 2 3
PLANTS_OUTER_TESTS := $(foreach n,$(PLANTS_OUTER),$(O)/plain/plants-outer-$n)
$(PLANTS_OUTER_TESTS): $(O)/plain/plants-outer-%: tests/plants/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/plants/plant %s --quick --part %s/%s\n' \
		$(O) $* $(words $(PLANTS_OUTER)) >$@ && chmod +x $@

test-run: $(PLANTS_OUTER_TESTS)
EXTRA_TESTS += $(PLANTS_OUTER_TESTS)

.PHONY: plants-outer plants-flags
plants-flags:
	@:
plants-outer: ## plant bugs around the core, PLANTS='NAME...': a test must fail of each
	@tests/plants/plant $(O) $(PLANTS)
plants-outer: all-plain tests-plain $(O)/plain/crash
