# The simulated CXL-hybrid device (README.md): RTL and golden model in lock-step. Verilator's C++ of
# the RTL, the generated registers and the programs lie in build/fpga/.
# SPDX-License-Identifier: Apache-2.0

FPGA      := $(O)/fpga
FPGA_RTL  := $(sort $(wildcard fpga-sim/rtl/*.sv))
FPGA_REGS := $(FPGA)/regs/device_regs.sv
# parameters of the device (rtl/device.sv): FPGA_SHAPE='-GMSHRS=16'; WAVE=1: it can write waves
FPGA_SHAPE ?=
SRC_fpga  := $(wildcard fpga-sim/model/*.c fpga-sim/tb/*.c) \
             $(addprefix fpga-sim/exp/,readers.c clock.c points.c layers.c) bench/sparse/select.c
OBJ_fpga  := $(SRC_fpga:%.c=$(FPGA)/obj/%.o)

# the model alone; and the experiments' RTL, where nothing but what is looked at is scarce
OBJ_fpga_exp := $(patsubst %.c,$(FPGA)/obj/%.o,$(wildcard fpga-sim/model/*.c fpga-sim/exp/*.c) \
                    bench/sparse/select.c bench/model/model.c bench/model/sweep.c \
                    tests/lib/core_shell.c)
# and how much smaller than 32 GiB (the model) and 64 MiB (the RTL) the device is: 1, 2 or 4
SCALE ?= 1
FPGA_EXP_SHAPE := -GMSHRS=64 -GSLOT_LOG=10 -GUNITS=32 -GCLEANS=32 -GQUEUE_LOG=8
FPGA_EXP_SETS  := -GUNIT_LOG=5 -GSETS_LOG=$(patsubst 1,10,$(patsubst 2,9,$(patsubst 4,8,$(SCALE))))
# ... with lines of 64 KiB
FPGA_EXP_LONG  := -GLINE_LOG=10 -GUNIT_LOG=1 \
                  -GSETS_LOG=$(patsubst 1,6,$(patsubst 2,5,$(patsubst 4,4,$(SCALE))))
# the long run's RTL: so many miss registers that a set can be pending as a whole
FPGA_LONG_SHAPE := -GMSHRS=20 -GUNITS=8 -GQUEUE_LOG=4
# the longest first
FPGA_EXP_POINTS ?= cliff:4 clean:4 cliff:1.5 cleaned:1.5 windows:4 cliff:0.5 clean:0.5 \
                   windows:0.5 demand:0 demand:4 demand:10 demand:32 \
                   decode:100 decode:10 ahead:10 decode:20 ahead:20
FPGA_EXP_LONG_POINTS ?= decode:100 decode:10 ahead:10 decode:20 ahead:20

.PHONY: fpga-test fpga-plants fpga-exp fpga-formal fpga-area fpga-long

ifneq ($(findstring fpga,$(MAKECMDGOALS))$(filter test-run,$(MAKECMDGOALS)),)

HAVE_SIMULATOR := $(and $(shell command -v verilator),$(shell command -v g++))
FPGA_CACHE := $(shell command -v ccache)

$(FPGA_REGS): fpga-sim/regs/generate fpga-sim/regs/device.regs
	@echo '  REGS  $(@D)'
	@fpga-sim/regs/generate fpga-sim/regs/device.regs $(@D)

# what Verilator is told changes with the shape: kept in a file, so that another shape builds anew
FPGA_VERILATOR := verilator --cc -Wall --assert -O3 --x-assign fast --x-initial fast \
                  $(if $(WAVE),--trace) $(if $(COVERAGE),--coverage-line) $(FPGA_SHAPE) -GPLANTS=1 \
                  -y fpga-sim/rtl -y $(FPGA)/regs --top-module device --prefix Vdevice \
                  --Mdir $(FPGA)/verilated
$(shell mkdir -p $(FPGA); echo '$(FPGA_VERILATOR)' | cmp -s - $(FPGA)/verilator.command || \
	echo '$(FPGA_VERILATOR)' >$(FPGA)/verilator.command)

$(FPGA)/verilated/Vdevice__ALL.a: $(FPGA_RTL) $(FPGA_REGS) $(FPGA)/verilator.command
	@echo '  RTL   $@'
	@$(FPGA_VERILATOR) fpga-sim/rtl/device.sv
	@$(MAKE) -s -C $(@D) -f Vdevice.mk OPT_FAST=-O2 OPT_SLOW=-O0 OPT_GLOBAL=-O2 \
		OBJCACHE=$(FPGA_CACHE) Vdevice__ALL.a verilated.o verilated_threads.o \
		$(if $(WAVE),verilated_vcd_c.o) $(if $(COVERAGE),verilated_cov.o)

$(sort $(OBJ_fpga) $(OBJ_fpga_exp)): $(FPGA)/obj/%.o: %.c $(FPGA_REGS) $(O)/config.mk .ci/flags.mk
	@mkdir -p $(@D)
	@echo '  CC    $@'
	@$(CC) $(FLAGS) -O2 -Ifpga-sim/model -Ifpga-sim/exp -Ifpga-sim/tb \
		$(CPPFLAGS) $(CFLAGS) \
		-MMD -MP -c -o $@ $<
-include $(OBJ_fpga:.o=.d) $(OBJ_fpga_exp:.o=.d)

FPGA_VROOT := $(if $(HAVE_SIMULATOR),$(shell verilator --getenv VERILATOR_ROOT))
$(FPGA)/bench: fpga-sim/tb/shell.cpp fpga-sim/tb/pins.h $(FPGA)/verilated/Vdevice__ALL.a $(OBJ_fpga)
	@echo '  LINK  $@'
	@g++ -std=c++17 -O2 -Wall -DVM_TRACE=$(if $(WAVE),1,0) \
		-DVM_COVERAGE=$(if $(COVERAGE),1,0) -I$(FPGA)/verilated -Ifpga-sim/tb \
		-isystem $(FPGA_VROOT)/include -isystem $(FPGA_VROOT)/include/vltstd -o $@ $< \
		$(OBJ_fpga) $(FPGA)/verilated/*.o -pthread

$(FPGA)/fpga-short: fpga-sim/module.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nBUILD=$$(dirname "$$0") exec fpga-sim/tb/short %s\n' \
		'$(if $(HAVE_SIMULATOR),,skip)' >$@ && chmod +x $@

fpga-test: ## the CXL-hybrid device: RTL and golden model in lock-step (FPGA_SHAPE=, WAVE=1)
fpga-test: $(if $(HAVE_SIMULATOR),$(FPGA)/bench) $(FPGA)/fpga-short
	@$(FPGA)/fpga-short || [ $$? -eq 77 ]

# experiment c has the service's core in it
$(FPGA)/exp: $(OBJ_fpga_exp) $(O)/plain/libcore.a $(O)/plain/libbase.a
	@echo '  LINK  $@'
	@$(CC) $(FLAGS) $(FLAGS_plain) $(CFLAGS) $(LDFLAGS) -o $@ $(OBJ_fpga_exp) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_libtier) -lm

fpga-exp: ##   the device's experiments: model at full size, RTL at 1/512 (SCALE=, JOBS=)
fpga-exp: $(FPGA)/exp
ifneq ($(HAVE_SIMULATOR),)
	@$(MAKE) FPGA=$(FPGA)-exp FPGA_SHAPE='$(FPGA_EXP_SHAPE) $(FPGA_EXP_SETS)' $(FPGA)-exp/bench
	@$(MAKE) FPGA=$(FPGA)-exp64 FPGA_SHAPE='$(FPGA_EXP_SHAPE) $(FPGA_EXP_LONG)' \
		$(FPGA)-exp64/bench
	@fpga-sim/exp/run $(FPGA) $(SCALE) $(FPGA)/exp $(FPGA)-exp/bench $(FPGA_EXP_POINTS) \
		$(FPGA)-exp64/bench $(FPGA_EXP_LONG_POINTS)
else
	@echo 'fpga-exp: the RTL is skipped (packages verilator and g++ bring the simulator)'
	@fpga-sim/exp/run $(FPGA) $(SCALE) $(FPGA)/exp
endif

fpga-formal: ## prove properties of its blocks, and find a bug planted in each (PROOFS='NAME...')
fpga-formal: $(FPGA_REGS)
	@BUILD=$(FPGA) fpga-sim/formal/prove || [ $$? -eq 77 ]

fpga-area: ##  what it takes of an FPGA, block by block (AREA='NAME=VALUE...': other parameters)
fpga-area: $(FPGA_REGS)
	@fpga-sim/area $(FPGA) $(AREA)

fpga-long: ##  10^8 random transactions in lock-step, coverage (LONG=, SEED=, JOBS=, ON=1)
ifneq ($(HAVE_SIMULATOR),)
fpga-long:
	@$(MAKE) FPGA=$(FPGA)-lines COVERAGE=1 FPGA_SHAPE='$(FPGA_LONG_SHAPE)' $(FPGA)-lines/bench
	@$(MAKE) FPGA=$(FPGA)-long FPGA_SHAPE='$(FPGA_LONG_SHAPE)' $(FPGA)-long/bench
	@BUILD=$(FPGA)-long LINES=$(FPGA)-lines LONG=$(or $(LONG),100000000) SEED=$(or $(SEED),1) \
		JOBS=$(or $(JOBS),2) ON=$(ON) fpga-sim/tb/long
else
fpga-long:
	@echo 'fpga-long: skipped (packages verilator and g++ bring the simulator)'
endif

fpga-plants: ## plant bugs into its RTL (BUGS='N...'): the short run must find each
fpga-plants: $(if $(HAVE_SIMULATOR),$(FPGA)/bench)
	@$(if $(HAVE_SIMULATOR),BUILD=$(FPGA) fpga-sim/tb/plants,\
		echo 'fpga-plants: skipped (no verilator)')

test-run: $(if $(HAVE_SIMULATOR),$(FPGA)/bench) $(FPGA)/fpga-short
EXTRA_TESTS += $(FPGA)/fpga-short

endif
