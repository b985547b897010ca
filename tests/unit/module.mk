# What some tests link beside the libraries: sources of programs, which are in no archive. The
# object files become prerequisites, and the link rule takes all objects it depends on.
# SPDX-License-Identifier: Apache-2.0

TESTED_bench := $(filter-out bench/tierbench.c,$(SRC_tierbench)) tierd/net/conn.c
TESTED_ctl   := $(filter-out tierd/ctl/tierctl.c,$(SRC_tierctl))

# $(call tested,VARIANT,NAME): tests/unit/test_NAME_*.c link TESTED_NAME
define tested
$(patsubst %.c,$(O)/$1/%,$(filter tests/unit/test_$2_%,$(SRC_tests))): \
	$(call objects,$1,$(TESTED_$2))
endef
$(foreach v,$(VARIANTS),$(foreach n,bench ctl,\
	$(if $(filter tests/unit/test_$n_%,$(SRC_tests)),$(eval $(call tested,$v,$n)))))

# The door of llama.cpp is a library of its own.
$(foreach v,$(VARIANTS),$(eval $(O)/$v/tests/unit/test_llama_state: \
	$(call objects,$v,libtier/connect/llama/state.c)))

# A host around the core, for tests that need one.
HOSTED := admit areas audit bounds clean descs discard era evacuate fetch flush full lead holes \
          lane migrate orphans path pin plan prefix put quota reads reopen request reserve retain \
          rivals room conversation stream_full stream_pages swap tiny tombs trial walks writeback
$(foreach v,$(VARIANTS),$(eval $(HOSTED:%=$(O)/$v/tests/unit/test_core_%) \
	$(patsubst %,$(O)/$v/tests/unit/test_%,dispatch obs recover): \
	$(call objects,$v,tests/fuzz/host.c))\
	$(eval -include $(patsubst %.o,%.d,$(call objects,$v,tests/fuzz/host.c))))

# Who traps each access (reads.h) shares it with no sanitizer.
READS_TESTS := $(O)/plain/tests/unit/test_front_reads $(O)/plain/tests/unit/test_core_reads
test-run: $(READS_TESTS)
EXTRA_TESTS += $(READS_TESTS)

SEEDS ?= 1000
.PHONY: sim-objects
sim-objects: $(O)/plain/tests/unit/test_object_clients $(O)/plain/tests/unit/test_object_crash
sim-objects: ## SEEDS=1000 worlds of objects: clients, faults, quotas, crashes (SEED= the first)
	@for test in $^; do SEED=$(SEED) SEEDS=$(SEEDS) $$test || exit 1; done

# It opens its core 900 times: arrays as the simulator's (tests/lib/areas.h). With the sanitizer's
# calloc most of the time would go into the shadow of what nobody touches.
$(foreach v,$(VARIANTS),$(eval $(O)/$v/tests/unit/test_core_tombs: \
	$(call objects,$v,tests/sim/heap.c))\
	$(eval $(O)/$v/tests/unit/test_core_tombs: LDFLAGS += $(WRAP_sim)))
