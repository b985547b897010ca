# The models of the protocols, checked by Spin: all cases by `make model`, which keeps a hash of the
# texts, and in `make test` when a text is not that of the hash. Where spin or a compiler is missing
# they are skipped.
# SPDX-License-Identifier: Apache-2.0

MODELS := lease put clean era event pool
EXTRA_TESTS += $(MODELS:%=tests/model/%.sh)

.PHONY: model
model: ## check all cases of the protocols' models with Spin; keep the hash of what holds
	@for model in $(MODELS); do tests/model/check $$model || [ $$? -eq 77 ] || exit 1; done
