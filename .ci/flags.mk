# Every compiler and linker flag, each with its reason. The Makefile includes this file; nothing
# else sets flags. CFLAGS, CPPFLAGS and LDFLAGS given by the user come last and so win.
# SPDX-License-Identifier: Apache-2.0

ifeq ($(origin CC),default)
CC := gcc
endif

# --- language
FLAGS += -std=gnu11                  # C11, plus typeof, statement expressions and attributes
FLAGS += -D_GNU_SOURCE               # memfd_create, pidfd, O_DIRECT, accept4
FLAGS += -D_FILE_OFFSET_BITS=64      # one off_t everywhere, 32-bit hosts included
FLAGS += -I. -Ilibtier/include       # "libtier/abi/ring.h" names its folder; <tier.h> is public
FLAGS += -UNDEBUG                    # assertions stay on in release: they guard shared state
FLAGS += -g                          # a core dump from the field must be readable
FLAGS += -fno-omit-frame-pointer     # perf and the sanitizers walk stacks cheaply
FLAGS += -fno-strict-aliasing        # the same shared bytes are read as words and as structs
FLAGS += -pthread                    # threads and their feature macros, at compile and link
# No -march: the binary may run on another machine than the one that built it. Faster instructions
# are chosen at run time, by the library (isa-l) or by an ifunc.

# --- warnings: all are errors, so that none is ever a backlog
FLAGS += -Wall -Wextra -Werror
FLAGS += -Wshadow                    # an inner name that hides an outer one is misread
FLAGS += -Wstrict-prototypes -Wmissing-prototypes  # every external function has its header
FLAGS += -Wvla                       # stack use has a bound
FLAGS += -Wformat=2                  # log lines are checked like printf
FLAGS += -Wno-format-zero-length      # a log line may have no further values: ""
FLAGS += -Wpointer-arith             # no arithmetic on void *
FLAGS += -Wwrite-strings             # string literals are const
FLAGS += -Wundef                     # a misspelt feature macro is an error, not zero

# --- variants: build/<variant>/ each has its own objects
VARIANTS := plain asan tsan clang cov

CC_plain    := $(CC)
FLAGS_plain := -O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong  # what is installed
# The core is many small functions, called for each block of each request: inlined and unrolled it
# replays a trace a tenth faster, and compiles a sixth slower. The register of the frame pointer is
# worth 3 % of its instructions; perf walks these stacks by --call-graph=dwarf.
FLAGS_core_plain := -O3 -fomit-frame-pointer

# -g1: lines are what a sanitizer's report says; the rest of -g is a fifth of the compiler's time.
CC_asan    := $(CC)
FLAGS_asan := -O1 -g1 -fsanitize=address,undefined \
              -fno-sanitize-recover=all      # the first finding ends the test

CC_tsan    := $(CC)
FLAGS_tsan := -O1 -g1 -fsanitize=thread

CC_clang    := clang
FLAGS_clang := -O2 -Wthread-safety           # checks the annotations of libtier/base/lock.h

CC_cov    := $(CC)
FLAGS_cov := -O0 --coverage

# --- position independence: libtier goes into a shared object, the rest into executables
PIC := -fPIC

# --- linking
LINK += -Wl,--as-needed              # only what is used becomes a dependency
LINK += -Wl,-z,relro,-z,now          # no writable function table in a daemon that parses input
