# Random small mistakes in the sources, to see which of them the tests find: run by hand.
# SPDX-License-Identifier: Apache-2.0

.PHONY: mutate
mutate: ##   plant mistakes, print which no test finds: N=200 SEED=n [UNDER=folder | AT=file:line]
	@tests/mutate/mutate --n $(or $(N),100) --seed $(or $(SEED),1) \
		$(UNDER:%=--under %) $(AT:%=--at %) $(O)
