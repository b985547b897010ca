# Real engines on tier: what each needs lies below build/engines, made by bench/engines/setup.
# SPDX-License-Identifier: Apache-2.0

# One thread: figures of a small machine, and bits that do not depend on how many there are.
engines_with = O=$(O) BUILD=$(O)/plain bench/engines/setup $1 && \
               O=$(O) BUILD=$(O)/plain OMP_NUM_THREADS=1 $(O)/engines/$1/bin/python

.PHONY: engines engines-demo
engines: all-plain ##  real engines get from tier what they would compute (FULL=1: all, 5 GB)
	@$(call engines_with,light) bench/engines/llama --exact || [ $$? -eq 77 ]
	@$(if $(FULL),$(call engines_with,full) tests/upstream/run || [ $$? -eq 77 ])
engines-demo: all-plain ##  ask a small model twice: the second answer comes sooner, and why
	@$(call engines_with,light) bench/engines/demo || [ $$? -eq 77 ]

# In `make test`: five prompts.
EXTRA_TESTS += $(O)/plain:bench/engines/check
