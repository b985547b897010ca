# Real engines on tier: what each needs lies below build/engines, made by bench/engines/setup.
# SPDX-License-Identifier: Apache-2.0

# One thread: figures of a small machine, and bits that do not depend on how many there are.
ENGINES = O=$(O) bench/engines/setup && OMP_NUM_THREADS=1 BUILD=$(O)/plain \
          $(O)/engines/light/bin/python

.PHONY: engines engines-demo
engines: all-plain ##  real engines get from tier the very answers that they would have computed
	@$(ENGINES) bench/engines/llama --exact || [ $$? -eq 77 ]
engines-demo: all-plain ##  ask a small model twice: the second answer comes sooner, and why
	@$(ENGINES) bench/engines/demo || [ $$? -eq 77 ]

# In `make test`: five prompts.
EXTRA_TESTS += $(O)/plain:bench/engines/check
