# Targets of the benchmarks beside `make bench`.
# SPDX-License-Identifier: Apache-2.0

.PHONY: setup-peers
setup-peers: ## install what `make bench ONLY=peers` measures beside tier; starts no service
	@O=$(O) bench/peers/setup

# What tierbench measures, and behind it turns-lmcache, which needs the engines' environment.
BENCH_TIER = $(filter-out turns-lmcache,$(ONLY))
BENCH_LMCACHE = $(if $(FULL),$(if $(ONLY),$(filter turns-lmcache,$(ONLY)),turns-lmcache))
bench_run = $(if $(BENCH_LMCACHE)$(BENCH_TIER),,$(if $(ONLY),$(error turns-lmcache is FULL=1's)))\
	$(if $(ONLY),$(if $(BENCH_TIER),$(bench_tier),:),$(bench_tier)) \
	$(if $(BENCH_LMCACHE),&& $(bench_lmcache))
bench_tier = $(O)/plain/tierbench $(if $(FULL),,--quick --light --rounds 7) --json $1 $(BENCH_TIER)
# 1: a figure is short; 77: it said why it cannot run here.
bench_lmcache = { $(call engines_with,full) bench/engines/turns --json $1; rc=$$?; \
	[ $$rc = 0 ] || [ $$rc = 1 ] || [ $$rc = 77 ]; }

# Several hosts on this one (bench/hosts).
define hosts_variant
$$(O)/$1/hosts-kv: $$(call objects,$1,bench/hosts/kv.c) $$(O)/$1/libtier.a $$(O)/$1/libbase.a
	$$(link_$1) $$(LIBS_libtier)
-include $$(O)/$1/obj/bench/hosts/kv.d
endef
$(foreach v,$(VARIANTS),$(eval $(call hosts_variant,$v)))

test-run: $(O)/plain/hosts-kv $(if $(HAVE_ASAN),$(O)/asan/hosts-kv)
check: $(O)/$(VARIANT)/hosts-kv

ROUNDS ?= 10
.PHONY: hosts-demo hosts-test hosts-spread hosts-beside setup-hosts
hosts-test: all-plain $(O)/plain/hosts-kv ## peers that lie or die, wires cut, ROUNDS=10 times
	@rm -f $(O)/hosts-test.txt
	@ROUNDS=$(ROUNDS) STOP=60 FIGURES=$(O)/hosts-test.txt $(RUN) --timeout 3000 --jobs 1 \
		$(patsubst %,$(O)/plain:tests/integration/%.sh, \
			hosts_faults hosts_cut hosts hosts_homes); rc=$$?; \
	cat $(O)/hosts-test.txt; exit $$rc

hosts-demo: setup setup-hosts ##  two hosts in network namespaces: what one put, the other reads
	@$(MAKE) all $(O)/plain/hosts-kv VARIANT=plain
	@BUILD=$(O)/plain bench/hosts/demo || [ $$? = 77 ] # 77: it said why it cannot run here

hosts-spread: all-plain ## how long until every host has a deletion, an epoch, a host's end (N=8)
	@$(call engines_with,light) bench/hosts/spread --hosts $(or $(N),8) || [ $$? -eq 77 ]

hosts-beside: all-plain $(O)/plain/hosts-kv ## what two hosts that pull cost local demand (ROUNDS=n)
	@BUILD=$(O)/plain bench/hosts/beside || [ $$? = 77 ]

setup-hosts: ## install etcd and ip for make hosts-demo; starts no service
	@O=$(O) bench/hosts/setup

# Does a daemon age? (bench/aging)
define aging_variant
$$(O)/$1/aging-churn: $$(call objects,$1,bench/aging/churn.c) $$(O)/$1/libtier.a $$(O)/$1/libbase.a
	$$(link_$1) $$(LIBS_libtier) -lm
-include $$(O)/$1/obj/bench/aging/churn.d
endef
$(foreach v,$(VARIANTS),$(eval $(call aging_variant,$v)))

HOURS ?= 1
.PHONY: soak aging-check
soak: all-plain $(O)/plain/aging-churn ## HOURS=1 of 50 times normal churn: does it age?
	@mkdir -p $(O)/soak
	@python3 bench/aging/aging run --build $(O)/plain --minutes $$(( $(HOURS) * 60 )) \
		-o $(O)/soak/aging.html; rc=$$?; echo "plots: $(O)/soak/aging.html"; exit $$rc

aging-check: ## the aging gate's statistics beside pymannkendall's and scipy's (from PyPI)
	@[ -x $(O)/aging-venv/bin/python ] || python3 -m venv $(O)/aging-venv
	@$(O)/aging-venv/bin/pip -q install pymannkendall==1.4.3 scipy
	@$(O)/aging-venv/bin/python bench/aging/check 500
