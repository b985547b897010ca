# The rules for one variant: $(eval $(call variant,asan)) makes the targets all-asan, tests-asan
# and the files under build/asan/; syntax-asan only looks at the sources. Objects lie in
# build/asan/obj/ at the path of their source. A program or library whose sources do not exist (yet)
# is left out.
# SPDX-License-Identifier: Apache-2.0

objects = $(patsubst %.c,$(O)/$1/obj/%.o,$2)

# What a test links, in one group because the archives need each other. On the command line,
# TEST_LIBS='libcore.a libbase.a' builds one test while another folder does not compile.
TEST_LIBS ?= libproto.a $(if $(SRC_daemon),libdaemon.a) $(if $(SRC_core),libcore.a) \
             libtier.a libbase.a

# What the tests of the lock-free parts link beside the library: `make test` compiles a variant for
# them alone, in which no more than this of core and daemon is needed.
SRC_lockfree := tierd/core/unit/index.c tierd/core/unit/events.c \
                tierd/core/unit/page.c tierd/worker.c tierd/fault.c

define variant
all_$1 := $$(O)/$1/libbase.a $$(O)/$1/libtier.a \
          $$(if $$(and $$(MAP_libtier),$$(SRC_libtier)),$$(O)/$1/libtier.so) \
          $$(O)/$1/libtier-preload.so $$(O)/$1/tier \
          $$(if $$(SRC_core),$$(O)/$1/libcore.a) $$(if $$(SRC_daemon),$$(O)/$1/libdaemon.a) \
          $$(if $$(SRC_tierd),$$(O)/$1/tierd) $$(O)/$1/tierd-net \
          $$(if $$(SRC_tierctl),$$(O)/$1/tierctl) \
          $$(if $$(SRC_tierbench),$$(O)/$1/tierbench)
tests_$1 := $$(SRC_tests:%.c=$$(O)/$1/%)
tsan_tests_$1 := $$(foreach t,$$(tests_$1),$$(if $$(filter test_tsan_%,$$(notdir $$t)),$$t))
test_libs_$1 := $$(TEST_LIBS:%=$$(O)/$1/%)
daemon_libs_$1 := $$(if $$(SRC_daemon),$$(O)/$1/libdaemon.a) \
                  $$(if $$(SRC_core),$$(O)/$1/libcore.a) $$(O)/$1/libbase.a
bench_libs_$1 := $$(O)/$1/libtier.a $$(O)/$1/libproto.a $$(daemon_libs_$1)

.PHONY: all-$1 tests-$1
all-$1: $$(all_$1)
tests-$1: $$(tests_$1)

$$(O)/$1/libbase.a:   $$(call objects,$1,$$(SRC_base))
$$(O)/$1/libtier.a:   $$(call objects,$1,$$(SRC_libtier) $$(SRC_base))
$$(O)/$1/libcore.a:   $$(call objects,$1,$$(SRC_core))
$$(O)/$1/libdaemon.a: $$(call objects,$1,$$(SRC_daemon))
$$(O)/$1/libproto.a:  $$(call objects,$1,$$(SRC_proto))
$$(O)/$1/lib%.a:
	@mkdir -p $$(@D)
	@rm -f $$@
	@echo '  AR    $$@'
	@$$(AR) rcs $$@ $$^

$$(O)/$1/libtier.so.$$(SOMAJOR): $$(call objects,$1,$$(SRC_libtier) $$(SRC_base)) $$(MAP_libtier)
	@echo '  LD    $$@'
	@$$(CC_$1) $$(FLAGS) $$(FLAGS_$1) $$(CFLAGS) -shared -Wl,-soname,libtier.so.$$(SOMAJOR) \
		-Wl,--version-script=$$(MAP_libtier) $$(LINK) $$(LDFLAGS) -o $$@ \
		$$(filter %.o,$$^) $$(LIBS_libtier)
$$(O)/$1/libtier.so: $$(O)/$1/libtier.so.$$(SOMAJOR)
	@ln -sf $$(<F) $$@

# Loaded into programs that know no sanitizer: as it is installed, whatever the variant.
$$(O)/$1/shim/%.o: %.c $$(O)/shim/shim_names.h $$(O)/config.mk .ci/flags.mk
	@mkdir -p $$(@D)
	@echo '  CC    $$@'
	@$$(CC_plain) $$(FLAGS) $$(FLAGS_plain) $$(PIC) -fvisibility=hidden -I$$(O)/shim \
		$$(CPPFLAGS) $$(CFLAGS) -MMD -MP -c -o $$@ $$<
$$(O)/$1/libtier-preload.so: $$(SRC_shim:%.c=$$(O)/$1/shim/%.o) $$(O)/shim/shim.map
	@echo '  LD    $$@'
	@$$(CC_plain) $$(FLAGS) $$(FLAGS_plain) $$(CFLAGS) -shared \
		-Wl,-soname,libtier-preload.so -Wl,--version-script=$$(O)/shim/shim.map $$(LINK) \
		$$(LDFLAGS) -o $$@ $$(filter %.o,$$^) -ldl
-include $$(SRC_shim:%.c=$$(O)/$1/shim/%.d)
$$(O)/$1/tier: $$(call objects,$1,$$(SRC_tier)) $$(O)/$1/libtier.a
	$$(link_$1) $$(JANSSON_LIBS) $$(LIBS_libtier)

# $$(link_$1) OBJECTS-AND-ARCHIVES LIBRARIES
link_$1 = @mkdir -p $$(@D) && echo '  LINK  $$@' && $$(CC_$1) $$(FLAGS) $$(FLAGS_$1) $$(CFLAGS) \
	$$(LINK) $$(LDFLAGS) -o $$@ $$(filter %.o,$$^) \
	-Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group

$$(O)/$1/tierd: $$(call objects,$1,$$(SRC_tierd)) $$(daemon_libs_$1)
	$$(link_$1) $$(LIBS_tierd)
$$(O)/$1/tierd-net: $$(call objects,$1,$$(SRC_net)) $$(O)/$1/libtier.a
	$$(link_$1) $$(LIBS_net)
$$(O)/$1/tierctl: $$(call objects,$1,$$(SRC_tierctl)) $$(O)/$1/libtier.a $$(O)/$1/libdaemon.a \
                   $$(O)/$1/libcore.a
	$$(link_$1) $$(JANSSON_LIBS) $$(LIBS_libtier)
$$(O)/$1/tierbench: $$(call objects,$1,$$(SRC_tierbench) tierd/net/conn.c) $$(bench_libs_$1)
	$$(link_$1) $$(LIBS_tierd) $$(SSL_LIBS) -lm
$$(filter-out $$(tsan_tests_$1),$$(tests_$1)): $$(test_libs_$1)
$$(tsan_tests_$1): $$(call objects,$1,$$(SRC_lockfree)) $$(O)/$1/libtier.a $$(O)/$1/libbase.a
$$(tests_$1): $$(O)/$1/tests/%: $$(O)/$1/obj/tests/%.o $$(call objects,$1,$$(SRC_testlib))
	$$(link_$1) $$(LIBS_tierd) $$(SSL_LIBS) $$(CMOCKA_LIBS) -lm

# Whoever opens a core (tests/lib/shadow.c).
ifeq ($1,asan)
SHADOW_asan := -Wl,--wrap=calloc,--wrap=free
$$(O)/$1/tierd $$(O)/$1/tierbench: $$(call objects,$1,tests/lib/shadow.c)
$$(O)/$1/tierd $$(O)/$1/tierbench $$(tests_$1): private LDFLAGS += $$(SHADOW_asan)
endif

$$(O)/$1/obj/libtier/%.o: FLAGS += $$(PIC)
$$(O)/$1/obj/tierd/core/%.o: FLAGS_$1 += $$(FLAGS_core_$1)
$$(O)/$1/obj/tierd/policy/%.o: FLAGS_$1 += $$(FLAGS_core_$1)
$$(O)/$1/obj/%.o: %.c $$(O)/config.mk .ci/flags.mk
	@mkdir -p $$(@D)
	@echo '  CC    $$@'
	@$$(CC_$1) $$(FLAGS) $$(FLAGS_$1) $$(CPPFLAGS) $$(CFLAGS) -MMD -MP -c -o $$@ $$<
-include $$(patsubst %.o,%.d,$$(call objects,$1,$$(SRC_base) $$(SRC_libtier) $$(SRC_core) \
         $$(SRC_daemon) $$(SRC_tierd) $$(SRC_net) $$(SRC_tierctl) $$(SRC_tierbench) \
         $$(SRC_testlib) $$(SRC_tier) $$(SRC_tests)))

# What the compiler says of every source, without making code of it.
.PHONY: syntax-$1
syntax_$1 := $$(patsubst %.c,$$(O)/$1/syntax/%.ok,$$(SRC_base) $$(SRC_libtier) $$(SRC_core) \
             $$(SRC_daemon) $$(SRC_tierd) $$(SRC_net) $$(SRC_tierctl) $$(SRC_tierbench) \
             $$(SRC_testlib) $$(SRC_tests) $$(wildcard tests/sim/*.c tests/nth/*.c) \
             $$(wildcard tests/sim/*/*.c) \
             $$(wildcard tests/integration/crash*.c bench/hosts/*.c libtier/connect/*/*.c))
syntax-$1: $$(syntax_$1)
$$(O)/$1/syntax/%.ok: %.c $$(O)/config.mk .ci/flags.mk
	@mkdir -p $$(@D)
	@echo '  CHECK $$<'
	@$$(CC_$1) $$(FLAGS) $$(FLAGS_$1) $$(CPPFLAGS) $$(CFLAGS) -MMD -MP -MT $$@ \
		-MF $$(@:.ok=.d) -fsyntax-only $$< && touch $$@
-include $$(syntax_$1:.ok=.d)
endef
