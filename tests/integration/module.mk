# The kill loop and the storm (crash.h): one program, a short form of each in `make test`, long ones
# on demand.
# SPDX-License-Identifier: Apache-2.0

SRC_crash := $(wildcard tests/integration/crash*.c)

define crash_variant
$$(O)/$1/crash: $$(call objects,$1,$$(SRC_crash)) $$(O)/$1/libtier.a
	$$(link_$1) $$(JANSSON_LIBS) $$(LIBS_libtier)
-include $$(patsubst %.o,%.d,$$(call objects,$1,$$(SRC_crash)))
endef
$(foreach v,plain asan,$(eval $(call crash_variant,$v)))

KILLS   ?= 200
SECONDS ?= 600
STOP    ?= 150

CRASH_TESTS := $(O)/plain/crash-kills $(O)/plain/crash-storm $(if $(HAVE_ASAN),$(O)/asan/crash-few)
$(O)/plain/crash-kills: CRASH_ARGS = --kills 24
$(O)/plain/crash-storm: CRASH_ARGS = --storm --seconds 20
$(O)/asan/crash-few:    CRASH_ARGS = --storm --seconds 15
$(CRASH_TESTS): $(O)/%: tests/integration/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec "$$(dirname "$$0")/crash" %s\n' '$(CRASH_ARGS)' >$@ && chmod +x $@

test-run: $(O)/plain/crash $(if $(HAVE_ASAN),$(O)/asan/crash) $(CRASH_TESTS)
EXTRA_TESTS += $(CRASH_TESTS)

# Steps of sparse decode are those of the bench.
$(foreach v,$(VARIANTS),$(eval $(O)/$v/tests/integration/test_sparse_decode: \
	$(call objects,$v,$(filter-out bench/tierbench.c,$(SRC_tierbench)) tierd/net/conn.c)))

# 14,000 objects, more than descriptors are allowed; with the sanitizer 4,000, two lists. 40 seeds
# of crashes; with it 10.
OBJECTS_PLAIN := $(O)/plain/tests/integration/test_api_object_many \
                 $(O)/plain/tests/unit/test_object_crash
test-run: $(OBJECTS_PLAIN)
EXTRA_TESTS += $(if $(HAVE_ASAN),$(OBJECTS_PLAIN))

# The victim beside each attack, for longer than in `make test`.
ISOLATION_MS ?= 3000
.PHONY: isolation
ISOLATION := $(addprefix $(O)/plain/tests/integration/test_isolation_,beside floods objects)
isolation: $(ISOLATION)
isolation: all-plain ## a victim beside each attack, ISOLATION_MS=3000 of each
	@for test in $(ISOLATION); do \
		BUILD=$(O)/plain TIER_ISOLATION_MS=$(ISOLATION_MS) $$test || exit 1; done

.PHONY: crash-long storm-long
crash-long: $(O)/plain/tests/integration/test_api_death
crash-long: all-plain $(O)/plain/crash ## kill the daemon KILLS=200 times, stop a client STOP=150 s
	@TIER_STOP_SECONDS=$(STOP) $(RUN) --timeout 1000 \
		$(O)/plain/tests/integration/test_api_death
	@$(O)/plain/crash --kills $(KILLS)
storm-long: all-plain $(O)/plain/crash ## evictions and evacuations under readers for SECONDS=600
	@$(O)/plain/crash --storm --seconds $(SECONDS)

# Its package starts a service: masked, where there is a service manager, before it comes.
.PHONY: setup-metrics
setup-metrics: ## install promtool (Debian's prometheus, its service masked) for the metrics' test
	@[ ! -d /run/systemd/system ] || systemctl mask prometheus.service
	@.ci/setup prometheus

.PHONY: demo-scraped
demo-scraped: setup-metrics all-plain ## a Prometheus scrapes the demo, and answers the dashboard
	@DEMO=1 $(RUN) --timeout 900 $(O)/plain:tests/integration/guide.sh

SEQUENCES ?= 2000
.PHONY: shim-test
shim-test: all-plain ##  SEQUENCES=2000 random sequences of file operations under tier run (SEED=)
	@BUILD=$(O)/plain SEQUENCES=$(SEQUENCES) SEED=$${SEED:-$$(date +%s)} \
		tests/integration/objects_programs.sh
