# Kernels without a GPU: compiled as C++ over a model of the device (emu/), compared with the golden
# model in C (ref/). The model switches stacks by hand, on x86-64; elsewhere its tests are left out.
# SPDX-License-Identifier: Apache-2.0

CUDA_OUT   := $(O)/cuda
CUDA_TEST  := $(CUDA_OUT)/cuda-test
CUDA_HERE  := $(filter x86_64,$(shell uname -m))
CUDA_CXX   := $(CXX) -std=gnu++17 -O2 -g1 -I. -Wall -Wextra -Werror -Wshadow
CUDA_TEST_OBJECTS := $(patsubst %.cc,$(CUDA_OUT)/obj/%.o,$(wildcard cuda/emu/*.cc cuda/test/*.cc)) \
                     $(patsubst %.cu,$(CUDA_OUT)/obj/%.cu.o,$(wildcard cuda/kernels/*.cu)) \
                     $(call objects,plain,cuda/ref/msa.c cuda/ref/layout.c)
CUDA_DOOR  := $(call objects,plain,cuda/device/door.c libtier/base/cuda_driver.c)

$(CUDA_OUT)/obj/%.o: %.cc cuda/module.mk
	@mkdir -p $(@D)
	@echo '  CXX   $@'
	@$(CUDA_CXX) -MMD -MP -c -o $@ $<
$(CUDA_OUT)/obj/%.cu.o: %.cu cuda/module.mk
	@mkdir -p $(@D)
	@echo '  CXX   $@'
	@$(CUDA_CXX) -MMD -MP -x c++ -c -o $@ $<
# What nvcc made of them, kept in the tree and tied to the source by a hash (emu/ptx).
CUDA_PTX := $(patsubst cuda/ptx/%.ptx,$(CUDA_OUT)/ptx/%,$(wildcard cuda/ptx/*.ptx))
CUDA_TEST_OBJECTS += $(CUDA_PTX:=.o)
$(CUDA_OUT)/ptx/%.cc: cuda/ptx/%.ptx cuda/emu/ptx $(wildcard cuda/kernels/* cuda/ref/msa.h)
	@mkdir -p $(@D)
	@echo '  PTX   $@'
	@cuda/emu/ptx translate $< $@
$(CUDA_OUT)/ptx/%.o: $(CUDA_OUT)/ptx/%.cc
	@echo '  CXX   $@'
	@$(CUDA_CXX) -O1 -w -ffp-contract=off -MMD -MP -c -o $@ $<
.SECONDARY: $(CUDA_PTX:=.cc)
$(CUDA_TEST): $(CUDA_TEST_OBJECTS) $(CUDA_DOOR)
	@echo '  LINK  $@'
	@$(CUDA_CXX) -o $@ $^
-include $(patsubst %.o,%.d,$(CUDA_TEST_OBJECTS))

# --- the stand-in for the driver, which tests load in its place
STANDIN := $(CUDA_OUT)/libcuda.so.1
$(CUDA_OUT)/obj/cuda/standin/%.o: cuda/standin/%.c cuda/module.mk $(O)/config.mk
	@mkdir -p $(@D)
	@echo '  CC    $@'
	@$(CC_plain) $(FLAGS) -O2 -fPIC -fvisibility=hidden $(CFLAGS) -MMD -MP -c -o $@ $<
$(STANDIN): $(patsubst %.c,$(CUDA_OUT)/obj/%.o,$(wildcard cuda/standin/*.c))
	@echo '  LD    $@'
	@$(CC_plain) -shared -Wl,-soname,libcuda.so.1 $(LDFLAGS) -pthread -o $@ $^
-include $(patsubst %.c,$(CUDA_OUT)/obj/%.d,$(wildcard cuda/standin/*.c))
$(foreach v,$(VARIANTS),$(addprefix $(O)/$v/tests/,unit/test_backend_mem unit/test_backend_cuda \
  integration/test_api_device integration/test_api_kernels integration/test_device_faults \
  integration/test_api_gpu integration/test_device_door)): $(STANDIN)
# Kernels on the model of the device, in a C program.
CUDA_CASES := main device decode index era layout whole words wrappers
CUDA_KERNELS := $(filter-out $(CUDA_CASES:%=$(CUDA_OUT)/obj/cuda/test/%.o),$(CUDA_TEST_OBJECTS))
ifneq ($(CUDA_HERE),)
DOOR_TESTS := $(VARIANTS:%=$(O)/%/tests/integration/test_device_door)
$(VARIANTS:%=$(O)/%/tests/integration/test_api_gpu) $(DOOR_TESTS): $(CUDA_KERNELS)
$(VARIANTS:%=$(O)/%/tests/integration/test_api_gpu) $(DOOR_TESTS): \
	LDFLAGS += -Wl,--no-as-needed -lstdc++
$(DOOR_TESTS): $(call objects,plain,cuda/device/door.c)
endif

# --- what we rely on in a driver
CONTRACT := $(CUDA_OUT)/contract
$(CONTRACT): $(call objects,plain,cuda/contract/contract.c libtier/base/cuda_driver.c)
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	@$(CC_plain) $(FLAGS) $(FLAGS_plain) $(LINK) $(LDFLAGS) -o $@ $^
MEASURE := $(CUDA_OUT)/measure
$(MEASURE): $(call objects,plain,cuda/contract/measure.c libtier/base/cuda_driver.c) \
	$(O)/plain/libbase.a
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	@$(CC_plain) $(FLAGS) $(FLAGS_plain) $(LINK) $(LDFLAGS) -o $@ $^
FIGURES := $(CUDA_OUT)/figures
FIGURES_C := $(wildcard cuda/device/*.c) libtier/base/cuda_driver.c
$(FIGURES): $(call objects,plain,$(FIGURES_C)) $(CUDA_KERNELS)
	@echo '  LINK  $@'
	@$(CUDA_CXX) -o $@ $^
-include $(FIGURES_C:%.c=$(O)/plain/obj/%.d) $(O)/plain/obj/cuda/contract/measure.d
-include $(O)/plain/obj/cuda/contract/contract.d $(O)/plain/obj/cuda/ref/msa.d \
         $(O)/plain/obj/cuda/ref/layout.d

NVCC ?= $(or $(shell command -v nvcc),/usr/local/cuda/bin/nvcc)
.PHONY: cuda-contract cuda-static cuda-ptx
cuda-ptx: ## compile the kernels anew for cuda/ptx (needs nvcc)
	@rm -f cuda/ptx/*.ptx; mkdir -p cuda/ptx
	@for kernel in cuda/kernels/*.cu; do \
		cuda/emu/ptx keep '$(NVCC)' $$kernel \
			cuda/ptx/$$(basename $$kernel .cu).ptx || exit 1; \
	done
	@for plant in $$(sed -n 's/^ASM_PLANT(\(\w*\),.*/\1/p' cuda/emu/plants.def); do \
		cuda/emu/ptx keep '$(NVCC)' cuda/kernels/wrappers.cu \
			cuda/ptx/wrappers.$$plant.ptx $$plant || exit 1; \
	done
cuda-contract: $(CONTRACT) $(STANDIN) ##  what we rely on in a CUDA driver, on the stand-in
	@LD_LIBRARY_PATH=$(CUDA_OUT) $(CONTRACT)
cuda-static: ##  compile the kernels: registers, spills, instructions (needs nvcc, no GPU)
	@cuda/test/static '$(NVCC)' $(CUDA_OUT)/static || [ $$? = 77 ]
	@cuda/emu/ptx same '$(NVCC)' cuda/ptx/*.ptx
	@header=$$(dirname '$(NVCC)')/../include; [ ! -f "$$header/cuda.h" ] || { \
		$(CC_plain) -std=gnu11 -I. -isystem "$$header" -fsyntax-only \
			cuda/contract/shapes.c && \
		echo "the declarations of libtier/base/cuda_driver.h agree with cuda.h"; }
# The model's fragments by CuTe's account of them. Its headers are not ours to keep: BSD-3, in the
# wheel nvidia-cutlass 4.2 (cutlass_library/source), which includes CCCL, which nvcc brings.
.PHONY: cuda-cute
cuda-cute: $(CUDA_KERNELS) ##  mma.sync against CuTe's layouts (CUTLASS=folder)
	@[ -f '$(CUTLASS)/include/cute/layout.hpp' ] || { \
		echo "cuda-cute: CUTLASS=FOLDER with include/cute, as in the wheel" \
			"nvidia-cutlass (cutlass_library/source); nothing was compared"; \
		exit 2; }
	@$(CUDA_CXX) -isystem '$(CUTLASS)/include' \
		-isystem "$$(dirname '$(NVCC)')/../include" \
		-isystem "$$(dirname '$(NVCC)')/../include/cccl" \
		-o $(CUDA_OUT)/cute cuda/test/oracle/cute.cc $(CUDA_KERNELS)
	@$(CUDA_OUT)/cute
CUDA_FAULTS := $(addprefix $(O)/plain/tests/,unit/test_backend_cuda \
	integration/test_device_faults integration/test_api_kernels \
	integration/test_api_gpu)
.PHONY: cuda-fault
$(CUDA_FAULTS): | $(O)/plain/tierd $(O)/plain/tierctl
cuda-fault: $(CUDA_FAULTS) ##  let the driver fail, kill clients under kernels (FAULTS=8 LIVES=1000)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && chmod 755 $$folder && \
	export BUILD=$(O)/plain TMPDIR=$$folder && \
	for test in $(CUDA_FAULTS); do \
		LIVES=$(or $(LIVES),1000) FAULTS=$(or $(FAULTS),8) $$test \
			>$$folder/log 2>&1 || { cat $$folder/log; exit 1; }; \
		grep '^#' $$folder/log; \
	done
# A machine that has a GPU may lack what tests of a daemon need: their stages are then not run.
GPU_CHECK_TESTS := $(O)/plain/tests/integration/test_device_door $(CUDA_FAULTS) \
                   $(O)/plain/tierd $(O)/plain/tierctl
gpu-check: $(CONTRACT) $(MEASURE) $(FIGURES) $(STANDIN) $(CUDA_TEST)
	-@$(MAKE) --no-print-directory -k $(GPU_CHECK_TESTS)
	@cuda/gpu-check $(O) $(STAGES)

.PHONY: cuda-test cuda-plants
cuda-test: $(CUDA_TEST) ##  kernels on a model of the device against the golden model (SCHEDULES=8)
	@$(CUDA_TEST) --schedules $(or $(SCHEDULES),8)
cuda-plants: $(CUDA_TEST) ##  plant mistakes in kernels (PLANTS='NAME...'): a case must find each
	@cuda/test/plants $(CUDA_TEST) $(PLANTS)

# In `make test`: two schedules a case, and all plants; the door by a driver that knows no newer PTX
# than it asks for, and graphs of a layer whose pages lie on the device, then on the host.
CUDA_RUNS := $(CUDA_OUT)/test-kernels $(CUDA_OUT)/test-plants $(CUDA_OUT)/test-contract \
             $(CUDA_OUT)/test-door $(CUDA_OUT)/test-layer cuda/test/refusals \
             cuda/test/gpu-check-ends
$(CUDA_OUT)/test-door: cuda/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nSTANDIN_CUDA=12000 LD_LIBRARY_PATH=%s exec %s %s\n' '$(CUDA_OUT)' \
		'$(CUDA_TEST)' '--door device --schedules 1 --only wrappers' >$@ && chmod +x $@
$(CUDA_OUT)/test-layer: cuda/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s host 4096\n' '$(CUDA_OUT)' \
		'$(FIGURES)' >$@ && chmod +x $@
$(CUDA_OUT)/test-contract: cuda/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s\n' '$(CUDA_OUT)' '$(CONTRACT)' >$@ && \
		chmod +x $@
$(CUDA_OUT)/test-kernels: cuda/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec %s --schedules 2\n' '$(CUDA_TEST)' >$@ && chmod +x $@
$(CUDA_OUT)/test-plants: cuda/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec cuda/test/plants %s\n' '$(CUDA_TEST)' >$@ && chmod +x $@
ifneq ($(CUDA_HERE),)
test-run: $(CUDA_TEST) $(CONTRACT) $(FIGURES) $(STANDIN) $(CUDA_RUNS)
EXTRA_TESTS += $(CUDA_RUNS)
endif
