# The models of the protocols, checked by Spin in `make test`, or alone by `make model`. Where
# spin or a compiler is missing they are skipped.
# SPDX-License-Identifier: Apache-2.0

MODEL_TESTS := tests/model/lease.sh tests/model/put.sh tests/model/clean.sh \
               tests/model/era.sh tests/model/event.sh
EXTRA_TESTS += $(MODEL_TESTS)

.PHONY: model
model: ## check the protocols' models with Spin
	@$(RUN) $(MODEL_TESTS)
