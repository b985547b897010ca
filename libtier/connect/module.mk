# The doors that are C libraries of their own, beside libtier.so.
# SPDX-License-Identifier: Apache-2.0

SRC_llama := $(wildcard libtier/connect/llama/*.c)
LLAMA_LIB := $(O)/plain/libtier_llama.so

all-plain: $(LLAMA_LIB)
$(LLAMA_LIB).$(SOMAJOR): $(call objects,plain,$(SRC_llama)) $(O)/plain/libtier.so \
                         libtier/connect/llama/llama.map
	@echo '  LD    $@'
	@$(CC_plain) $(FLAGS) $(FLAGS_plain) $(CFLAGS) -shared -Wl,-soname,$(@F) \
		-Wl,--version-script=libtier/connect/llama/llama.map $(LINK) $(LDFLAGS) -o $@ \
		$(filter %.o,$^) -L$(O)/plain -ltier -ldl
$(LLAMA_LIB): $(LLAMA_LIB).$(SOMAJOR)
	@ln -sf $(<F) $@
-include $(patsubst %.o,%.d,$(call objects,plain,$(SRC_llama)))
