# The simulator: build/<variant>/sim, `make sim`, `make sim-long`; 4,000 seeds in `make test`, some
# more with sanitizers, wide and tight ones, and the planted bugs.
# SPDX-License-Identifier: Apache-2.0

SRC_sim  := $(wildcard tests/sim/*.c) tests/lib/areas.c
WRAP_sim := -Wl,--wrap=calloc,--wrap=free  # tests/sim/heap.c

define sim_variant
$$(O)/$1/sim: $$(call objects,$1,$$(SRC_sim)) $$(O)/$1/libcore.a $$(O)/$1/libbase.a
	$$(link_$1) $$(WRAP_sim) $$(LIBS_tierd)
-include $$(patsubst %.o,%.d,$$(call objects,$1,$$(SRC_sim)))
endef
$(foreach v,plain asan cov,$(eval $(call sim_variant,$v)))

# 4,000 seeds in four programs, so that each stays far below the runner's timeout. Fresh ones are
# what finds something: sim-long.
SIM_PARTS := 1 2 3 4
SIM_TESTS := $(foreach n,$(SIM_PARTS),$(O)/plain/sim-$n) $(O)/asan/sim-few
$(foreach n,$(SIM_PARTS),$(eval \
	$(O)/plain/sim-$n: SIM_ARGS = --seeds 1000 --from $$(shell expr 1000 \* $n - 999)))
$(O)/asan/sim-few: SIM_ARGS = --seeds 500 --from 20001
$(O)/plain/sim-wide: SIM_ARGS = --seeds 600 --wide
$(O)/plain/sim-wide-tight: SIM_ARGS = --seeds 300 --wide --tight
$(O)/plain/sim-drives: SIM_ARGS = --seeds 300 --wide --drives 2
SIM_TESTS += $(O)/plain/sim-wide $(O)/plain/sim-wide-tight $(O)/plain/sim-drives
PLANTS_PARTS := 1 2
PLANTS_TESTS := $(foreach n,$(PLANTS_PARTS),$(O)/plain/plants-$n)

$(SIM_TESTS): $(O)/%: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec "$$(dirname "$$0")/sim" %s\n' '$(SIM_ARGS)' >$@ && chmod +x $@
$(PLANTS_TESTS): $(O)/plain/plants-%: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/sim/plants "$$(dirname "$$0")" --part %s/%s\n' \
		$* $(words $(PLANTS_PARTS)) >$@ && chmod +x $@

$(O)/plain/sim-stops: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/sim/stops "$$(dirname "$$0")/sim"\n' >$@ && chmod +x $@
SIM_TESTS += $(O)/plain/sim-stops

test-run: $(O)/plain/sim $(O)/asan/sim $(SIM_TESTS) $(PLANTS_TESTS)
EXTRA_TESTS += $(SIM_TESTS) $(PLANTS_TESTS)

.PHONY: sim sim-long
sim: $(O)/plain/sim ## one seed: make sim SEED=n [TRACE=1]
	@$(O)/plain/sim $(if $(SEED),--seed $(SEED)) $(if $(TRACE),--trace)
sim-long: $(O)/plain/sim ## fresh seeds until told to stop
	@$(O)/plain/sim --long
