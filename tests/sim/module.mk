# The simulator: build/<variant>/sim, `make sim`, `make sim-long`; 4,000 seeds in `make test`, some
# more with sanitizers, wide and tight ones, and the planted bugs.
# SPDX-License-Identifier: Apache-2.0

SRC_sim  := $(wildcard tests/sim/*.c) tests/lib/areas.c tests/lib/core_shell.c
WRAP_sim := -Wl,--wrap=calloc,--wrap=free  # tests/sim/heap.c

# The fleet of simulated hosts: the protocol of tierd-net (hosts/fleet.h).
SRC_sim_hosts := $(wildcard tests/sim/hosts/*.c) tests/sim/random.c

define sim_variant
$$(O)/$1/sim-hosts: $$(call objects,$1,$$(SRC_sim_hosts)) $$(O)/$1/libproto.a $$(O)/$1/libbase.a
	$$(link_$1) $$(LIBS_libtier)
-include $$(patsubst %.o,%.d,$$(call objects,$1,$$(SRC_sim_hosts)))
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
# One event has no items left for who is late: a slab is emptied, and 732 ms have passed.
$(O)/plain/sim-late: SIM_ARGS = --seeds 1 --from 40146
SIM_TESTS += $(O)/plain/sim-late
SIM_TESTS += $(O)/plain/sim-wide $(O)/plain/sim-wide-tight $(O)/plain/sim-drives
$(O)/plain/sim-hosts-500 $(O)/plain/sim-hosts-pool $(O)/plain/sim-hosts-rdma \
	$(O)/plain/sim-hosts-keep $(O)/asan/sim-hosts-few: SIM_PROGRAM = sim-hosts
$(O)/plain/sim-hosts-500: SIM_ARGS = --seeds 500
$(O)/plain/sim-hosts-pool: SIM_ARGS = --pool --seeds 100
$(O)/plain/sim-hosts-rdma: SIM_ARGS = --rdma --seeds 50
$(O)/plain/sim-hosts-keep: SIM_ARGS = --keep --seeds 50
$(O)/asan/sim-hosts-few: SIM_ARGS = --seeds 40 --from 20001
SIM_TESTS += $(O)/plain/sim-hosts-pool $(O)/plain/sim-hosts-rdma $(O)/plain/sim-hosts-keep
SIM_TESTS += $(O)/plain/sim-hosts-500 $(O)/asan/sim-hosts-few
SIM_PROGRAM = sim
PLANTS_PARTS := 1 2
PLANTS_TESTS := $(foreach n,$(PLANTS_PARTS),$(O)/plain/plants-$n)

$(SIM_TESTS): $(O)/%: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec "$$(dirname "$$0")/%s" %s\n' \
		$(SIM_PROGRAM) '$(SIM_ARGS)' >$@ && chmod +x $@
$(O)/plain/plants-hosts: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/sim/plants --hosts "$$(dirname "$$0")"\n' >$@ && chmod +x $@
SIM_TESTS += $(O)/plain/plants-hosts
$(PLANTS_TESTS): $(O)/plain/plants-%: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/sim/plants "$$(dirname "$$0")" --part %s/%s\n' \
		$* $(words $(PLANTS_PARTS)) >$@ && chmod +x $@

$(O)/plain/sim-stops: tests/sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec tests/sim/stops "$$(dirname "$$0")/sim"\n' >$@ && chmod +x $@
SIM_TESTS += $(O)/plain/sim-stops

test-run: $(O)/plain/sim $(O)/asan/sim $(O)/plain/sim-hosts $(O)/asan/sim-hosts \
          $(SIM_TESTS) $(PLANTS_TESTS)
EXTRA_TESTS += $(SIM_TESTS) $(PLANTS_TESTS)

.PHONY: sim sim-long
SIM_OF := $(O)/plain/sim$(if $(HOSTS),-hosts)
SIM_HOSTS := $(if $(HOSTS),--hosts $(HOSTS))
sim: $(SIM_OF) ## one seed: make sim SEED=n [TRACE=1] [HOSTS=5: of a fleet]
	@$(SIM_OF) $(SIM_HOSTS) $(if $(SEED),--seed $(SEED)) $(if $(TRACE),--trace)
sim-long: $(SIM_OF) ## fresh seeds until told to stop [HOSTS=5: of a fleet]
	@$(SIM_OF) $(SIM_HOSTS) --long
