# The table of contents of the build; `make help` prints it. One make, no recursion into folders:
# sources are found by wildcard, flags live in .ci/flags.mk, what the machine has in
# build/config.mk (written by .ci/probe), the rules for one variant in .ci/variant.mk. A folder
# with targets of its own adds a module.mk, which is included at the end.
# SPDX-License-Identifier: Apache-2.0

VERSION := 0.1.0
SOMAJOR := 0

# --- settings (make NAME=value)
O       ?= build
VARIANT ?= plain
PREFIX  ?= /usr/local
DESTDIR ?=
export O

# --- parallel unless told otherwise
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:

# --- the contents
.PHONY: all
all: ##        libraries, tierd, tierctl and tierbench into build/$(VARIANT)/
.PHONY: help
help: ##       this text
	@echo 'tier $(VERSION): make TARGET [NAME=value]'
	@sed -n 's/^\([a-z-]*\): .*##  *\(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) 2>/dev/null | \
		expand -t 16 | sort -u
	@echo
	@echo '  VARIANT=plain|asan|tsan|clang|cov   which build (default plain); they coexist'
	@echo '  O=DIR                               where to build (default build)'
	@echo "  TESTS='NAME...'                     run only these tests (make check)"
	@echo "  ONLY='NAME...' JSON=FILE            make bench: which, and where to write figures"
	@echo '  FULL=1                              the long form of make demo and make bench'
	@echo '  PREFIX=DIR DESTDIR=DIR              where make install puts things (/usr/local)'

.PHONY: setup
setup: ##      install the missing packages of .ci/packages (quiet when nothing is missing)
	@O=$(O) .ci/setup

# demo and test start make anew after setup: what setup installed changes build/config.mk, which
# this make has read already.
.PHONY: demo
demo: setup ##       setup, build, and show the service at work (FULL=1: longer)
	@$(MAKE) all VARIANT=plain
	@BUILD=$(O)/plain FULL=$(FULL) bench/demo

.PHONY: test
test: setup ##       setup, build all variants, run every test; ends "N passed, N failed"
	@$(MAKE) test-run

.PHONY: tests check tidy bench gpu-check install uninstall clean
tests: ##      build the test programs of VARIANT, do not run them
check: ##      run the tests of VARIANT only (TESTS='test_base_crc32c ...' for some)
tidy: ##       check the source against the budgets of docs (tests/tidy)
bench: ##      all figures, quick (FULL=1: full), and beside the last run (ONLY=, JSON=)
install: ##    install under DESTDIR PREFIX
uninstall: ##  remove exactly what install put there
gpu-check: ##  what needs a GPU; in small, on what stands in for one, where there is none

clean: ##      remove build/
	rm -rf $(O)

# --- what the machine has
QUIET_GOALS := help setup setup-deb setup-peers setup-hosts hosts-demo deb deb-same deb-test \
               clean demo test tidy uninstall
ifneq ($(filter-out $(QUIET_GOALS),$(or $(MAKECMDGOALS),all)),)
include $(O)/config.mk
ifneq ($(strip $(REQUIRED_MISSING)),)
$(error missing packages:$(REQUIRED_MISSING) (run `make setup`))
endif
endif
$(O)/config.mk: .ci/probe
	@CC='$(CC)' .ci/probe $@

include .ci/flags.mk
ifeq ($(filter $(VARIANT),$(VARIANTS)),)
$(error VARIANT=$(VARIANT) is none of: $(VARIANTS))
endif

LIBS_libtier  = $(CRYPTO_LIBS) $(ISAL_LIBS)
LIBS_net      = $(IBVERBS_LIBS) $(SSL_LIBS) $(CURL_LIBS) $(JANSSON_LIBS) $(LIBS_libtier)
LIBS_tierd    = $(URING_LIBS) $(NUMA_LIBS) $(INIH_LIBS) $(JANSSON_LIBS) $(ZLIB_LIBS) \
                $(SYSTEMD_LIBS) $(MICROHTTPD_LIBS) $(LIBS_libtier)
FLAGS += $(URING_CFLAGS) $(NUMA_CFLAGS) $(CRYPTO_CFLAGS) $(ISAL_CFLAGS) $(INIH_CFLAGS) \
         $(SSL_CFLAGS) $(CURL_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS) $(SYSTEMD_CFLAGS) \
         $(MICROHTTPD_CFLAGS) $(IBVERBS_CFLAGS) $(CMOCKA_CFLAGS)
FLAGS += -DTIER_VERSION='"$(VERSION)"' -DTIER_HAVE_SYSTEMD=$(if $(HAVE_SYSTEMD),1,0) \
         -DTIER_HAVE_MICROHTTPD=$(if $(HAVE_MICROHTTPD),1,0) \
         -DTIER_HAVE_IBVERBS=$(if $(HAVE_IBVERBS),1,0)

# --- what is built from what (all paths relative to the top)
SRC_base      := $(wildcard libtier/base/*.c libtier/abi/*.c)
SRC_libtier   := $(wildcard libtier/src/*.c)
SRC_core      := $(wildcard tierd/core/*.c tierd/core/*/*.c tierd/policy/*.c)
SRC_daemon    := $(wildcard tierd/backend/*.c tierd/object/*.c tierd/front/*.c tierd/obs/*.c \
                   tierd/*.c)
SRC_daemon    := $(filter-out tierd/main.c,$(SRC_daemon)) \
                 $(filter-out %/nvme.c,$(wildcard fpga-sim/model/*.c fpga-sim/port/*.c))
SRC_tierd     := $(wildcard tierd/main.c)
SRC_tier      := libtier/shim/run.c libtier/shim/import.c libtier/shim/weights.c
SRC_shim      := $(filter-out $(SRC_tier),$(wildcard libtier/shim/*.c)) libtier/src/socket.c \
                 libtier/src/error.c libtier/base/names.c
SRC_proto     := $(wildcard tierd/net/proto*.c)
SRC_net       := $(wildcard tierd/net/*.c)
SRC_tierctl   := $(wildcard tierd/ctl/*.c)
SRC_tierbench := $(wildcard bench/*.c bench/micro/*.c bench/model/*.c bench/trace/*.c \
                   bench/report/*.c bench/policy/*.c bench/replay/*.c bench/space/*.c \
                   bench/peers/*.c bench/sparse/*.c) cuda/ref/msa.c \
                 tests/lib/core_shell.c
SRC_testlib   := $(wildcard tests/lib/*.c)
SRC_tests     := $(wildcard tests/unit/test_*.c tests/integration/test_*.c)
SH_tests      := $(wildcard tests/integration/*.sh)
MAP_libtier   := $(wildcard libtier/libtier.map)

# What libtier-preload.so takes the place of: one list.
SHIM_LIST = sed '/^\#/d;/^$$/d' libtier/shim/shim.list
$(O)/shim/shim_names.h: libtier/shim/shim.list
	@mkdir -p $(@D)
	@$(SHIM_LIST) | sed 's/.*/SHIM_NAME(&)/' >$@
$(O)/shim/shim.map: libtier/shim/shim.list
	@mkdir -p $(@D)
	@(echo '{ global:'; $(SHIM_LIST) | sed 's/$$/;/'; echo 'local: *; };') >$@

include .ci/variant.mk
$(foreach v,$(VARIANTS),$(eval $(call variant,$v)))

all: all-$(VARIANT)
	@:
tests: tests-$(VARIANT)
	@:

# --- tests
RUN := tests/run
CHECK_ONE = $(filter %/$1 %/$1.sh,$(tests_$(VARIANT)) $(SH_tests))
CHECK = $(if $(TESTS),$(foreach t,$(TESTS),$(filter %/$t %/$t.sh,$1)),$1)

# They sleep, or wait for the disk or for a second to pass, for half of their time or more.
WAITING := crash-kills test_libtier_wait test_front_life test_tierctl test_libtier_edges \
           test_api_foresight test_front_ring test_libtier_attach test_api_pressure test_api_death \
           test_api_object test_api_object_races objects_programs hosts hosts_faults hosts_cut \
           hosts_homes hosts_keys hosts_many test_tsan_lease sim-stops test_backend_nvme_file \
           test_base_log test_store_repair

# Each file is compiled as often as something is shown by it: what is installed (plain), what the
# tests run (asan, and tsan for some), what clang says of all of it. Long programs start first, or
# the last of them would run alone.
.PHONY: test-run
test-run: all-plain $(if $(HAVE_ASAN),all-asan tests-asan,tests-plain) \
          $(if $(HAVE_CLANG),syntax-clang) $(if $(HAVE_TSAN),$(tsan_tests_tsan))
	@$(RUN) --waiting '$(WAITING)' $(EXTRA_TESTS) \
		$(if $(HAVE_ASAN),$(SH_tests:%=$(O)/asan:%) $(tests_asan),\
		                  $(SH_tests:%=$(O)/plain:%) $(tests_plain)) \
		$(if $(HAVE_TSAN),$(tsan_tests_tsan)) tests/tidy/selftest tests/tidy/tidy

NO_TEST := $(foreach t,$(TESTS),$(if $(call CHECK_ONE,$t),,$t))
ifneq ($(and $(filter check,$(MAKECMDGOALS)),$(strip $(NO_TEST))),)
$(error no test is called $(strip $(NO_TEST)); they lie in tests/unit and tests/integration)
endif

check: all-$(VARIANT) tests-$(VARIANT)
	@$(RUN) $(call CHECK,$(tests_$(VARIANT)) $(SH_tests:%=$(O)/$(VARIANT):%))

tidy:
	@tests/tidy/selftest && tests/tidy/tidy

# --- benchmarks
# Each run is kept and compared with the one before of this build folder, so of this machine.
BENCH_JSON = $(or $(JSON),$(O)/bench/$(shell date +%Y-%m-%d-%H%M%S).json)
bench: all-plain
	@mkdir -p $(O)/bench
	@before=$$(cat $(O)/bench/last 2>/dev/null); json='$(BENCH_JSON)'; \
	$(call bench_run,"$$json") && \
	echo "$$json" >$(O)/bench/last && \
	bench/page "$$json" -o $(O)/bench/page.html && echo "drawn: $(O)/bench/page.html" && \
	if [ -f "$$before" ]; then echo "beside $$before:"; \
		bench/compare "$$before" "$$json" || [ $$? = 1 ]; fi

# --- installation
include .ci/install.mk

# --- packages
include .ci/deb.mk

# --- folders with targets of their own
include $(wildcard cuda/module.mk kernel-mod/module.mk fpga-sim/module.mk bench/module.mk \
                   bench/engines/module.mk libtier/connect/module.mk \
                   tests/*/module.mk)
