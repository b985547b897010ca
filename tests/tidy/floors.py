"""The floors of the core (tierd/core/signal.h): a function calls its own floor and those below it.
What runs upward goes through the table of signals, which core.c wires, and no other way.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re

import csource

CORE = "tierd/core/"
# From the ground up. The headers that lie directly in tierd/core are the core's data: "state".
FLOORS = ("unit", "state", "io", "book", "place", "log", "move", "op", "hint", "audit", "core")
SIGNALS = re.compile(r"\(\*(\w+)\)\(struct core \*|\(\*(\w+)\)\(struct request \*")
SIGNALS_MAX = 8


def floor_of(path):
    folder, _, name = path[len(CORE):].rpartition("/")
    return folder or ("state" if name.endswith(".h") else "core")


def bodies(tree):
    """(path, name, line, text) of each function of the core, without comments and strings."""
    for path, text in tree.files(".c", ".h", under=CORE):
        lines = csource.drop_directives(csource.strip(text)).split("\n")
        for f in csource.functions(text):
            yield path, f.name, f.line, "\n".join(lines[f.line - 1:f.line - 1 + f.length])


def names_in(body):
    """Names that a function may call or take the address of: not members, nor what it declares."""
    body = re.sub(r"\b(struct|union|enum)\s+\w+", r"\1", body)
    own = {m[2] for m in re.finditer(r"(\w+)(?:\s*\*+\s*|\s+)(\w+)\s*[,;=)\[]", body)
           if m[1] not in ("return", "else", "case")}
    return {m[1] for m in re.finditer(r"(?<![\w.>])(\w+)\b(\s*\()?", body)
            if m[2] or m[1] not in own}


def upward(defined, where):
    """(path, line, function, name called) of each call to a higher floor; and how many calls go
    from one floor to another."""
    found, between = [], 0
    for path, name, line, body in where:
        own = FLOORS.index(floor_of(path))
        for called in names_in(body):
            target = defined.get(called)
            if target is None or target == own:
                continue
            between += 1
            if target > own:
                found.append((path, line, name, called))
    return sorted(found), between


def floors(tree, rule):
    all_bodies = list(bodies(tree))
    if not any("/" in path[len(CORE):] for path, *_ in all_bodies):
        return "no folders in tierd/core"
    for path, *_ in all_bodies:
        if floor_of(path) not in FLOORS:
            tree.find(path, 1, rule, f"{os.path.dirname(path)} is no floor (tests/tidy/floors.py)")
            return None
    # A static name is its file's own; two files may have it. A header's inline is for all.
    defined = {name: FLOORS.index(floor_of(path)) for path, name, _, body in all_bodies
               if path.endswith(".h") or not re.match(r"\s*static\b", body)}
    found, between = upward(defined, all_bodies)
    for path, line, name, called in found:
        tree.find(path, line, rule, f"{name} calls {called} of a higher floor "
                  f"({FLOORS[defined[called]]} is above {floor_of(path)})")
    signals = len(SIGNALS.findall(tree.texts.get(CORE + "signal.h", "")))
    if signals > SIGNALS_MAX:
        tree.find(CORE + "signal.h", 1, rule, f"{signals} signals, at most {SIGNALS_MAX}")
    print(f"# core: {' < '.join(FLOORS)}; {between} calls between floors, {len(found)} upward "
          f"calls, {signals} signals")
    return None
