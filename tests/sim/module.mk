# The simulator: build/<variant>/sim, `make sim`, `make sim-long`; two halves of the seeds in
# `make test`, one with sanitizers for fewer seeds.
# SPDX-License-Identifier: Apache-2.0

SRC_sim := $(wildcard tests/sim/*.c)

define sim_variant
$$(O)/$1/sim: $$(call objects,$1,$$(SRC_sim)) $$(O)/$1/libcore.a $$(O)/$1/libbase.a
	$$(link_$1) $$(LIBS_tierd)
-include $$(patsubst %.o,%.d,$$(call objects,$1,$$(SRC_sim)))
endef
$(foreach v,plain asan,$(eval $(call sim_variant,$v)))

SIM_TESTS := $(O)/plain/sim-first $(O)/plain/sim-second $(O)/asan/sim-few
$(O)/plain/sim-first:  SIM_ARGS = --seeds 5000 --from 1
$(O)/plain/sim-second: SIM_ARGS = --seeds 5000 --from 5001
$(O)/asan/sim-few:     SIM_ARGS = --seeds 300 --from 20001
$(SIM_TESTS): $(O)/%: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec "$$(dirname "$$0")/sim" %s\n' '$(SIM_ARGS)' >$@ && chmod +x $@

test-run: $(O)/plain/sim $(O)/asan/sim $(SIM_TESTS)
EXTRA_TESTS += $(SIM_TESTS)

.PHONY: sim sim-long
sim: $(O)/plain/sim ## one seed: make sim SEED=n [TRACE=1]
	@$(O)/plain/sim $(if $(SEED),--seed $(SEED)) $(if $(TRACE),--trace)
sim-long: $(O)/plain/sim ## fresh seeds until told to stop
	@$(O)/plain/sim --long
