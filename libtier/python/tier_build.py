"""Makes the C API of libtier, and of its door for llama.cpp, for Python from their headers: cffi
reads the preprocessed tier.h as it is, so a new call is there without a line here. Limited ABI: one
_tier.abi3.so for Python 3.8 and newer. Used by setup.py, and as `python3 tier_build.py FOLDER`.

Environment: TIER_INCLUDE (folders, with ":" between), TIER_LIB: where headers and libraries are, if
not where compilers look; TIER_RPATH: where they are at run time, if not where the loader looks; CC.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shlex
import subprocess
import sys

from cffi import FFI

INCLUDE = os.environ.get("TIER_INCLUDE", "").split(":") if "TIER_INCLUDE" in os.environ else []
LIB = [os.environ["TIER_LIB"]] if "TIER_LIB" in os.environ else []
RPATH = [os.environ["TIER_RPATH"]] if "TIER_RPATH" in os.environ else []
FREE = "void free(void *);\n"  # of answers of tier_admin


def declared(header, is_ours):
    """Declarations and constants of a header, of its own files only, as cffi reads them."""
    command = shlex.split(os.environ.get("CC", "cc")) + [f"-I{i}" for i in INCLUDE]
    source = f"#define __attribute__(x)\n#include <{header}>\n"
    out = subprocess.run(command + ["-E", "-dD", "-"], input=source, capture_output=True,
                         text=True, check=True).stdout
    lines, ours = [], False
    for line in out.split("\n"):
        if line.startswith("# "):  # which file the lines that follow are from
            ours = is_ours(os.path.basename(line.split('"')[1]))
        elif ours and line.startswith("#define "):
            constant = re.match(r"#define (TIER_\w+) +\S", line)
            lines += [f"#define {constant[1]} ..."] if constant else []
        elif ours and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def module(name, header, library, declarations, base=None):
    ffi = FFI()
    if base:
        ffi.include(base)
    ffi.cdef(declarations)
    ffi.set_source(f"tier.{name}", f"#include <stdlib.h>\n#include <{header}>",
                   libraries=[library], include_dirs=INCLUDE, library_dirs=LIB,
                   runtime_library_dirs=RPATH, py_limited_api=True)
    return ffi


TIER = module("_tier", "tier.h", "tier",
              declared("tier.h", lambda file: file.startswith("tier")) + FREE)
LLAMA = module("_llama", "tier_llama.h", "tier_llama",
               declared("tier_llama.h", lambda file: file == "tier_llama.h"), TIER)

if __name__ == "__main__":
    TIER.compile(tmpdir=sys.argv[1])
    LLAMA.compile(tmpdir=sys.argv[1])
