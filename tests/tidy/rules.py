"""The rules of tests/tidy, one function each: rule(tree, name) reports with tree.find and returns
None, or the reason why it could not look. RULES at the end is the list.

SPDX-License-Identifier: Apache-2.0
"""
import ast
import os
import re
import subprocess

import csource
import floors

CODE = (".c", ".h", ".cc", ".cu", ".cuh", ".v", ".vh", ".sv", ".py", ".sh", ".mk")
C = (".c", ".h")

FUNCTION_LINES = 60
KERNEL_LINES = 120
FILE_LINES = 800
RTL_LINES = 300
COLUMNS = 100
NESTING = 4
PARAMETERS = 6
# A library's own signature of what it calls: it cannot be shorter.
PARAMETERS_FIXED = {("tierd/exporter.c", "request")}
ASSERTS_PER_KLOC = 20
README_WORDS = 30
PAGE_WORDS = 50
PURPOSE_WORDS = 6

# Folders whose README a newcomer opens first.
PLANT_TABLES = {"tests/sim/planted.py": "tierd/core/", "tests/plants/table.py": ""}
README_FOLDERS = ("libtier", "tierd", "bench", "tests", "cuda", "kernel-mod", "fpga-sim")

# Where a mutable global is allowed: the one who owns the process, and who handles its signals.
GLOBALS_ALLOWED = re.compile(r"^(tierd/main|tierd/net/main|libtier/shim/.*|libtier/src/taken|"
                             r"tests/.*|bench/main)$")
# A data object in the table that objdump -t prints: section, name. Thread-locals lack the O.
OBJECT_SYMBOL = re.compile(r"[0-9a-f]+ .{6}(?:O| (?= \.t[bd])) (\.\S+|\*COM\*)\s+[0-9a-f]+\s+"
                           r"(?:\.hidden )?(\S+)$")
# A thread's last error text, the way out of its work: state of the thread, not of the library.
THREAD_LOCAL_ALLOWED = re.compile(r"^(libtier/src/.*|tierd/fault|tests/.*)$")

# Who may include whom. The first pattern that fits a path names its layer.
LAYERS = (
    ("abi", "libtier/abi/"), ("base", "libtier/base/"), ("public", "libtier/include/"),
    ("src", "libtier/src/"), ("shim", "libtier/shim/"), ("connect", "libtier/connect/"),
    ("device", "fpga-sim/model/"), ("device", "fpga-sim/port/"),
    ("core", "tierd/core/"), ("policy", "tierd/policy/"), ("backend", "tierd/backend/"),
    ("object", "tierd/object/"), ("front", "tierd/front/"),
    ("net", "tierd/net/"), ("obs", "tierd/obs/"), ("ctl", "tierd/ctl/"), ("main", "tierd/"),
)
EVERYONE = {"abi", "base", "public"}
MAY_INCLUDE = {
    "abi": {"abi"},
    "public": {"public"},
    "base": {"base", "abi"},
    "src": EVERYONE | {"src"},
    "shim": EVERYONE | {"src", "shim"},
    "connect": {"public", "connect"},
    "device": {"base", "device"},
    "core": EVERYONE | {"core"},
    "policy": EVERYONE | {"core", "policy"},
    "backend": EVERYONE | {"core", "device", "obs", "backend"},
    "object": EVERYONE | {"core", "backend", "object"},
    "front": EVERYONE | {"core", "object", "obs", "front"},
    "net": EVERYONE | {"core", "obs", "net"},
    "obs": EVERYONE | {"core", "object", "obs"},
    "ctl": EVERYONE | {"core", "object", "obs", "ctl"},
    "main": EVERYONE | {"core", "policy", "backend", "object", "front", "net", "obs", "main"},
}


def words(text):
    return len(re.findall(r"[A-Za-z][A-Za-z'-]+", text))


# --- budgets

def file_length(tree, rule):
    for path, text in tree.sources():
        count = text.count("\n")
        limit = RTL_LINES if path.endswith(".sv") else FILE_LINES
        if count > limit and not tree.generated(text):
            tree.find(path, limit + 1, rule, f"{count} lines, at most {limit}")


def columns(tree, rule):
    for path, text in tree.sources():
        if tree.generated(text):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            width = len(line.expandtabs(8))
            if width > COLUMNS:
                tree.find(path, number, rule, f"{width} columns, at most {COLUMNS}")


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def function_length(tree, rule):
    for path, text in tree.files(".c", ".h", ".cc", ".cu", ".cuh"):
        limit = KERNEL_LINES if path.endswith((".cu", ".cuh")) else FUNCTION_LINES
        for f in csource.functions(text):
            if f.length > limit and not tree.generated(text):
                tree.find(path, f.line, rule, f"{f.name} has {f.length} lines, at most {limit}")
    for path, text in tree.sources():
        if not path.endswith(".py") and "python" not in text.split("\n", 1)[0]:
            continue
        for name, line, length in python_functions(text):
            if length > FUNCTION_LINES:
                tree.find(path, line, rule,
                          f"{name} has {length} lines, at most {FUNCTION_LINES}")


def nesting(tree, rule):
    for path, text in tree.files(*C):
        for f in csource.functions(text):
            if f.nesting > NESTING:
                tree.find(path, f.nesting_line, rule,
                          f"{f.name} nests {f.nesting} deep, at most {NESTING}")


def parameters(tree, rule):
    for path, text in tree.files(*C):
        found = [(f.name, f.line, f.parameters) for f in csource.functions(text)]
        for name, line, count in found:
            if count > PARAMETERS and (path, name) not in PARAMETERS_FIXED:
                tree.find(path, line, rule,
                          f"{name} takes {count} parameters, at most {PARAMETERS}")


def indent(tree, rule):
    for path, text in tree.files(*C):
        for number, line in enumerate(csource.strip(text).split("\n"), 1):
            if line.strip() and line.startswith("    "):
                tree.find(path, number, rule, "indented with spaces; one tab a level")


def asserts(tree, rule):
    count = code = 0
    last = None
    for path, text in tree.files(".c", under="tierd/core/"):
        bare = csource.strip(text)
        count += len(re.findall(r"(?<![\w])(?!static_|_Static_)\w*assert\w*\s*\(", bare))
        code += csource.code_lines(text)
        last = path
    if last and count * 1000 < ASSERTS_PER_KLOC * code:
        tree.find("tierd/core", 1, rule,
                  f"{count} asserts in {code} lines, at least {ASSERTS_PER_KLOC} per 1,000")


# --- structure

def include_target(tree, path, name, quoted):
    """The file of the project that an #include means, or None for a system header."""
    for candidate in (name, os.path.normpath(os.path.join(os.path.dirname(path), name))
                      if quoted else None, "libtier/include/" + name):
        if candidate in tree.texts:
            return candidate
    return None


def include_graph(tree):
    graph = {}
    for path, text in tree.files(*C):
        graph[path] = [(line, target) for line, name, quoted in csource.includes(text)
                       if (target := include_target(tree, path, name, quoted))]
    return graph


def include_cycle(tree, rule):
    graph = include_graph(tree)
    done, trail = set(), []

    def visit(path):
        if path in done:
            return
        trail.append(path)
        for line, target in graph.get(path, []):
            if target in trail:
                loop = trail[trail.index(target):] + [target]
                tree.find(path, line, rule, " -> ".join(loop))
            else:
                visit(target)
        trail.pop()
        done.add(path)

    for path in sorted(graph):
        visit(path)


def layer_of(path):
    return next((layer for layer, prefix in LAYERS if path.startswith(prefix)), None)


def layers(tree, rule):
    for path, includes in include_graph(tree).items():
        own = layer_of(path)
        # check.c compares the formats with the public header's constants.
        if own is None or path == "libtier/abi/check.c":
            continue
        for line, target in includes:
            other = layer_of(target)
            if other not in MAY_INCLUDE[own]:
                tree.find(path, line, rule,
                          f"{own} may not include {target} ({other or 'outside the product'})")


def opening(tree, rule):
    """Each source file begins with its purpose and licence, in comments (a docstring in Python)."""
    for path, text in tree.sources():
        if not text.strip():
            continue
        licence = "GPL-2.0" if path.startswith("kernel-mod/") else "Apache-2.0"
        if path.endswith((".c", ".h", ".cc", ".cu", ".cuh", ".v", ".vh", ".sv")):
            top = re.match(r"\s*(?:/\*.*?\*/\s*|//[^\n]*\n\s*)*", text, re.DOTALL)[0]
        else:
            top = re.match(r"(?:#[^\n]*\n|\s*\n)*(?:\"\"\".*?\"\"\")?", text, re.DOTALL)[0]
        spdx = re.search(r"SPDX-License-Identifier: (\S+)", top)
        if not spdx:
            tree.find(path, 1, rule, "no SPDX line in the opening comment")
        elif not spdx[1].startswith(licence):
            tree.find(path, 1, rule, f"licence {spdx[1]}, here it is {licence}")
        prose = re.sub(r"SPDX[^\n]*|#![^\n]*", "", top)
        if words(prose) < PURPOSE_WORDS:
            tree.find(path, 1, rule, "the opening comment does not say what the file is for")


def globals_(tree, rule):
    if not os.path.isdir(tree.objects):
        return "no objects; build first"
    for folder, _, files in os.walk(tree.objects):
        for name in sorted(files):
            source = os.path.relpath(os.path.join(folder, name), tree.objects)[:-2]
            if name.endswith(".o") and source + ".c" in tree.texts:
                object_globals(tree, rule, os.path.join(folder, name), source)
    return None


def object_globals(tree, rule, path, source):
    table = subprocess.run(["objdump", "-t", path], capture_output=True, text=True, check=False)
    for line in table.stdout.splitlines():
        match = OBJECT_SYMBOL.match(line)
        if not match:
            continue
        section, symbol = match[1], re.sub(r"\.\d+$", "", match[2])
        local = section.startswith((".tbss", ".tdata"))
        # .data.rel.ro is constant once the loader has filled in addresses.
        shared = not section.startswith(".data.rel.ro") and (
            section.startswith((".data", ".bss")) or section == "*COM*")
        # Names from the compiler and the sanitizers begin with two underscores.
        if symbol.startswith(("__", ".")) or not (local or shared):
            continue
        allowed = THREAD_LOCAL_ALLOWED if local else GLOBALS_ALLOWED
        if not allowed.match(source):
            text = tree.texts[source + ".c"]
            found = re.search(rf"\b{re.escape(symbol)}\b", text)
            number = text.count("\n", 0, found.start()) + 1 if found else 1
            tree.find(source + ".c", number, rule, f"mutable global {symbol}")


# --- conventions in code

def atomics(tree, rule):
    for path, text in tree.files(*C):
        if path == "libtier/base/atomic.h" or not path.startswith(("libtier/", "tierd/")):
            continue
        for number, line in enumerate(csource.strip(text).split("\n"), 1):
            if re.search(r"\b__(atomic|sync)_\w+\s*\(|<stdatomic\.h>|\b_Atomic\b", line):
                tree.find(path, number, rule, "atomics are spelled in libtier/base/atomic.h")


def error_value(tree, rule):
    for path, text in tree.files(*C):
        if not path.startswith(("libtier/", "tierd/")):
            continue
        for number, line in enumerate(csource.strip(text).split("\n"), 1):
            if re.search(r"\breturn\s*\(?\s*-1\s*\)?\s*;", line):
                tree.find(path, number, rule, "return a negative errno, not -1")


def printf_attribute(tree, rule):
    for path, text in tree.files(*C):
        bare = csource.drop_directives(csource.strip(text))
        for match in re.finditer(r"^[^;{}]*?\b(\w+)\s*\([^;{}()]*\.\.\.\s*\)([^;{}]*)([;{])", bare,
                                 re.MULTILINE):
            name, after = match[1], match[2]
            prototype = rf"\b{name}\s*\([^;{{}}]*?\.\.\.\s*\)[^;{{}}]*?format\s*\(\s*printf"
            if "format" in after or re.search(prototype, bare) or not re.search(
                    r"char\s*\*\s*(?:const\s+)?\w+\s*,\s*\.\.\.", match[0]):
                continue
            if match[3] == "{" and any(re.search(prototype, csource.strip(other))
                                       for _, other in tree.files(".h")):
                continue
            line = bare.count("\n", 0, match.start(1)) + 1
            tree.find(path, line, rule, f"{name} takes a format without the printf attribute")


# --- the public interface

def public_functions(tree):
    """(path, text, declared, inline) of each public header: tier.h and those that it includes."""
    for path, text in tree.files(".h", under="libtier/include/"):
        inline = [(f.name, f.line) for f in csource.functions(text)]
        yield path, text, csource.declarations(text), inline


def public_names(tree):
    """name -> (path, line) of every declared public function."""
    return {name: (path, line) for path, _, declared, _ in public_functions(tree)
            for name, line in declared}


def public_doc(tree, rule):
    if not public_names(tree):
        return "no libtier/include/tier.h"
    for path, text, declared, inline in public_functions(tree):
        header_doc(tree, rule, path, text.split("\n"), declared + inline)
    return None


def header_doc(tree, rule, path, lines, functions):
    for name, line in functions:
        at = line - 2
        if lines[line - 1].rstrip().endswith("*/"):
            continue
        # A comment serves the declarations that follow it without an empty line.
        while at >= 0 and lines[at].strip() and not lines[at].rstrip().endswith("*/"):
            at -= 1
        if at < 0 or not lines[at].strip():
            tree.find(path, line, rule, f"{name} has no comment")
        if not name.startswith("tier_"):
            tree.find(path, line, rule, f"{name} lacks the prefix tier_")


def symbol_map(tree, rule):
    path = "libtier/libtier.map"
    names = public_names(tree)
    text = tree.texts.get(path)
    if text is None or not names:
        return "no libtier/libtier.map or no tier.h"
    bare = re.sub(r"#[^\n]*", "", csource.strip(text))
    exported = {m[1]: bare.count("\n", 0, m.start(1)) + 1
                for m in re.finditer(r"\b(\w+)\s*;", bare) if m[1].startswith("tier")}
    for name in sorted(names.keys() - exported.keys()):
        tree.find(*names[name], rule, f"{name} is not in {path}")
    for name in sorted(exported.keys() - names.keys()):
        tree.find(path, exported[name], rule, f"{name} is in no public header")
    if not re.search(r"local\s*:\s*\*\s*;", bare):
        tree.find(path, 1, rule, "no `local: *;`: everything would be exported")
    return None


def man_pages(tree, rule):
    """Once there are pages for C programmers, each public function stands in one."""
    names = public_names(tree)
    pages = "\n".join(text for _, text in tree.files(".3", under="docs/man/"))
    if not pages or not names:
        return "no pages docs/man/*.3"
    for name, (path, line) in names.items():
        if not re.search(rf"\b{name}\b", pages):
            tree.find(path, line, rule, f"{name} stands in no docs/man/*.3")
    return None


def error_texts(tree, rule):
    """Each error that tier.h names has a text of tier_strerror's."""
    path = "libtier/src/error.c"
    texts = tree.texts.get(path)
    if not public_names(tree) or texts is None:
        return f"no tier.h or no {path}"
    named = set(re.findall(r"\{ (E\w+), \"", texts))
    lines = [(header, number, line) for header, text, _, _ in public_functions(tree)
             for number, line in enumerate(text.split("\n"), 1)]
    for header, number, line in lines:
        for name in re.findall(r"-(E[A-Z0-9]{2,})\b", line):
            if name not in named:
                tree.find(header, number, rule, f"{name} has no text in {path}")
    return None


def counters(tree, rule):
    """A counter that is declared is counted somewhere: else operators read nought for ever."""
    path = "tierd/core/metrics.def"
    code = "\n".join(text for _, text in tree.files(".c", ".h", under="tierd/"))
    for m in re.finditer(r"^METRIC\((\w+)", tree.texts.get(path, ""), re.MULTILINE):
        if not re.search(rf"\b(?:metrics|m)(?:\.|->){m[1]}\b", code):
            line = tree.texts[path].count("\n", 0, m.start()) + 1
            tree.find(path, line, rule, f"{m[1]} is counted nowhere in tierd/")


# --- texts

def docs(tree, rule):
    for folder in README_FOLDERS:
        used = any(path.startswith(folder + "/") for path in tree.texts)
        if used and f"{folder}/README.md" not in tree.texts:
            tree.find(f"{folder}/README.md", 1, rule, "missing: what is here, where to start")
    for path, text in tree.files(".md"):
        least = README_WORDS if path.endswith("README.md") else PAGE_WORDS
        if words(text) < least:
            tree.find(path, 1, rule, f"{words(text)} words, at least {least}")
        last = text.rstrip().split("\n")[-1].strip()
        if last and not re.search(r"[.!?:)|`>_*\]]$", last) and not last.startswith(("#", "|")):
            tree.find(path, text.rstrip().count("\n") + 1, rule, "the page stops mid-sentence")


def dependencies(tree, rule):
    text = tree.texts.get(".ci/packages", "")
    page = tree.texts.get("docs/dependencies.md", "")
    listed = {line.split("#")[0].strip(): n for n, line in enumerate(text.split("\n"), 1)}
    listed.pop("", None)
    told = {m[1]: page.count("\n", 0, m.start()) + 1
            for m in re.finditer(r"^\| `([^`]+)` \|", page, re.MULTILINE)}
    for name in sorted(listed.keys() - told.keys()):
        tree.find(".ci/packages", listed[name], rule, f"{name} is not in docs/dependencies.md")
    for name in sorted(told.keys() - listed.keys()):
        tree.find("docs/dependencies.md", told[name], rule, f"{name} is not in .ci/packages")


# --- planted bugs

def plants(tree, rule):
    """What a planted bug replaces stands in its file exactly once."""
    for table, folder in PLANT_TABLES.items():
        names = {"__name__": "plants", "__file__": os.path.join(tree.top, table)}
        exec(tree.texts.get(table, "PLANTS = {}"), names)  # pylint: disable=exec-used
        for name, (file, *pieces) in names["PLANTS"].items():
            pieces = [piece for piece in pieces if isinstance(piece, str)]
            text = tree.texts.get(folder + file, "")
            for old, new in zip(pieces[::2], pieces[1::2]):
                pattern = r"\s+".join(re.escape(word) for word in old.split())
                text, found = re.subn(pattern, lambda _, new=new: new, text)
                if found != 1:
                    line = tree.texts[table].split(f'"{name}"')[0].count("\n") + 1
                    tree.find(table, line, rule,
                              f"{name}: {found} times in {folder}{file}: {old!r}")


RULES = {
    "file-length": file_length,
    "function-length": function_length,
    "columns": columns,
    "nesting": nesting,
    "parameters": parameters,
    "indent": indent,
    "asserts": asserts,
    "include-cycle": include_cycle,
    "layers": layers,
    "floors": floors.floors,
    "circles": floors.circles,
    "state": floors.state,
    "opening": opening,
    "globals": globals_,
    "atomics": atomics,
    "error-value": error_value,
    "printf-attribute": printf_attribute,
    "public-doc": public_doc,
    "symbol-map": symbol_map,
    "man-pages": man_pages,
    "error-texts": error_texts,
    "counters": counters,
    "docs": docs,
    "dependencies": dependencies,
    "plants": plants,
}
