# Real engines on tier: what each needs lies below build/engines, made by bench/engines/setup.
# SPDX-License-Identifier: Apache-2.0

# One thread: figures of a small machine, and bits that do not depend on how many there are.
engines_with = O=$(O) BUILD=$(O)/plain bench/engines/setup $1 && \
               O=$(O) BUILD=$(O)/plain OMP_NUM_THREADS=1 $(O)/engines/$1/bin/python

.PHONY: engines engines-demo engines-events
engines: all-plain ##  real engines get from tier what they would compute (FULL=1: all, 6 GB)
	@$(call engines_with,light) bench/engines/llama --exact || [ $$? -eq 77 ]
	@$(call engines_with,light) bench/engines/binding || [ $$? -eq 77 ]
	@$(call engines_with,light) bench/engines/events || [ $$? -eq 77 ]
	@$(if $(FULL),$(call engines_with,full) bench/engines/events || [ $$? -eq 77 ])
	@$(if $(FULL),$(call engines_with,full) bench/engines/vllm || [ $$? -eq 77 ])
	@$(if $(FULL),$(call engines_with,full) -W ignore bench/engines/sglang || [ $$? -eq 77 ])
	@$(if $(FULL),$(call engines_with,full) bench/engines/manual || [ $$? -eq 77 ])
	@$(if $(FULL),$(call engines_with,full) bench/engines/nixl || [ $$? -eq 77 ])
	@$(if $(FULL),$(call engines_with,full) tests/upstream/run || [ $$? -eq 77 ])
	@$(if $(FULL),O=$(O) BUILD=$(O)/plain tests/upstream/shim || [ $$? -eq 77 ])
engines-events: all-plain ##  a million events: do subscribers end with what is there? (EVENTS=)
	@$(call engines_with,light) bench/engines/events --events $(or $(EVENTS),1000000) || \
		[ $$? -eq 77 ]
engines-demo: all-plain ##  ask a small model twice: the second answer comes sooner, and why
	@$(call engines_with,light) bench/engines/demo || [ $$? -eq 77 ]

# The binding as a wheel, for an engine's environment; libtier is to be installed beside it.
.PHONY: wheel
wheel: all-plain ##    the Python binding as build/libtier-*.whl
	@O=$(O) BUILD=$(O)/plain bench/engines/setup light
	@rm -rf $(O)/wheel && cp -R libtier $(O)/wheel
	@TIER_INCLUDE=$(CURDIR)/libtier/include:$(CURDIR)/libtier/connect/llama \
		TIER_LIB=$(realpath $(O))/plain $(O)/engines/light/bin/python -m pip wheel --quiet \
		--no-index --no-build-isolation --no-deps -w $(O) $(O)/wheel/python
	@ls $(O)/libtier-*.whl

# In `make test`: five prompts.
EXTRA_TESTS += $(O)/plain:bench/engines/check
