# Targets of the benchmarks beside `make bench`.
# SPDX-License-Identifier: Apache-2.0

.PHONY: setup-peers
setup-peers: ## install what `make bench ONLY=peers` measures beside tier; starts no service
	@O=$(O) bench/peers/setup
