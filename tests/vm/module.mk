# Tests in a guest (README.md): `make vm-test`, not part of `make test`, for they need an emulator
# and a kernel image, which `tests/vm/setup` fetches.
# SPDX-License-Identifier: Apache-2.0

# All but long runs, and tests of two guests: these are named.
VM ?= $(filter-out %_long pool rdma_wire,\
	$(patsubst tests/vm/guest/%.sh,%,$(wildcard tests/vm/guest/*.sh)))
VM_PROGRAMS := $(patsubst %.c,$(O)/plain/vm/%,$(notdir $(wildcard tests/vm/*.c)))
ifeq ($(HAVE_IBVERBS),)
VM_PROGRAMS := $(filter-out %/rdma,$(VM_PROGRAMS))
endif

$(VM_PROGRAMS): $(O)/plain/vm/%: $(O)/plain/obj/tests/vm/%.o $(O)/plain/libtier.a
	@mkdir -p $(@D) && echo '  LINK  $@'
	@$(CC_plain) $(FLAGS) $(FLAGS_plain) $(CFLAGS) $(LINK) $(LDFLAGS) -o $@ $^ $(LIBS_libtier)
# It drives a device as the daemon does.
$(O)/plain/vm/passthrough: $(call objects,plain,$(filter tierd/backend/nvme%,$(SRC_daemon))) \
	$(O)/plain/libbase.a
$(O)/plain/vm/passthrough: LIBS_libtier += $(URING_LIBS)
# A peer of tierd-net; and a tierd-net that gives memory back while it is still registered.
$(O)/plain/vm/rdma: $(O)/plain/obj/tierd/net/conn.o $(O)/plain/libproto.a $(O)/plain/libbase.a
$(O)/plain/vm/rdma: LIBS_libtier += $(IBVERBS_LIBS) $(SSL_LIBS)
$(O)/plain/vm/unlends/verbs.c: tierd/net/verbs.c
	@mkdir -p $(@D) && sed '/ibv_dereg_mr(v->mr);/s/ibv.*/(void)0;/' $< >$@ && ! cmp -s $< $@
$(O)/plain/vm/unlends/tierd-net: $(O)/plain/vm/unlends/verbs.c $(O)/plain/tierd-net
	@echo '  LINK  $@'
	@$(CC_plain) $(FLAGS) $(FLAGS_plain) $(CFLAGS) $(LINK) $(LDFLAGS) -o $@ $< \
		$(filter-out %/verbs.o,$(call objects,plain,$(SRC_net))) $(O)/plain/libtier.a \
		$(LIBS_net)
-include $(patsubst tests/vm/%.c,$(O)/plain/obj/tests/vm/%.d,$(wildcard tests/vm/*.c))

.PHONY: vm-test
vm-test: $(addprefix $(O)/plain/tests/unit/,test_backend_mem test_backend_nvme)
vm-test: $(O)/plain/hosts-kv $(if $(HAVE_IBVERBS),$(O)/plain/vm/unlends/tierd-net)
vm-test: all-plain $(VM_PROGRAMS) ## CXL, NVMe, power cuts in a guest (VM='cxl numa ...', JSON=file)
	@tests/vm/setup $(VM)
	@! grep -q '^# build: kernel-mod' $(VM:%=tests/vm/guest/%.sh) || \
		$(MAKE) kernel-mod HEADERS=$(abspath $(O))/vm/headers/build
	@! grep -q '^# build: kernel-mod kernel-plants' $(VM:%=tests/vm/guest/%.sh) || \
		$(MAKE) kernel-plants HEADERS=$(abspath $(O))/vm/headers/build
	@BUILD=$(O)/plain tests/vm/starts
	@BUILD=$(O)/plain JSON=$(JSON) tests/vm/run $(VM)

.PHONY: vm-shell
vm-shell: all-plain $(O)/plain/hosts-kv $(VM_PROGRAMS) ## a shell in the guest of a test (VM=module)
	@tests/vm/setup $(VM)
	@! grep -q '^# build: kernel-mod' $(VM:%=tests/vm/guest/%.sh) || \
		$(MAKE) kernel-mod HEADERS=$(abspath $(O))/vm/headers/build
	@BUILD=$(O)/plain tests/vm/boot tests/vm/guest/$(firstword $(VM)).sh --shell

.PHONY: kernel-plants
kernel-plants: # tier_mem.ko with the planted bugs
	@tests/vm/plants.py $(O)/kernel-plants
	@$(call kmod_build,$(O)/kernel-plants)
