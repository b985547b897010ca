# The optional kernel module, built against headers in a folder and installed nowhere:
# `make kernel-mod HEADERS=/usr/src/linux-headers-$(uname -r)`.
# SPDX-License-Identifier: GPL-2.0-only

HEADERS ?= /lib/modules/$(shell uname -r)/build
KMOD := $(O)/kernel-mod

# The kernel's build system writes beside the sources, so they are copied; pahole is not asked for.
.PHONY: kernel-mod
kernel-mod: ##  tier_mem.ko (HEADERS=folder of a kernel's headers)
	@mkdir -p $(KMOD)/kernel-mod $(KMOD)/libtier/abi
	@cp -u kernel-mod/Kbuild kernel-mod/*.[ch] $(KMOD)/kernel-mod
	@cp -u libtier/abi/tier_mem.h $(KMOD)/libtier/abi
	@$(call kmod_build,$(KMOD))

# $(call kmod_build,FOLDER): of the sources in FOLDER/kernel-mod.
kmod_build = env -u MAKEFLAGS -u MAKEOVERRIDES -u O $(MAKE) -s -C $(HEADERS) modules \
	M=$(abspath $1)/kernel-mod CC='$(KMOD_CC)' W=1 KCFLAGS=-Werror \
	CONFIG_DEBUG_INFO_BTF_MODULES=
KMOD_CC ?= gcc
