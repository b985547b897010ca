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
# struct core: how many fields it may have, and how many of them two folders or more may write. Both
# only shrink: a field belongs in a struct of the folder that writes it, in that folder's header.
STATE = CORE + "state.h"
FIELDS_MAX = 48
SHARED_MAX = 2
STATE_LINES = 300


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


def core_fields(text):
    """Names of the members of struct core."""
    body = re.search(r"^struct core \{\n(.*?)^\};", csource.strip(text), re.DOTALL | re.MULTILINE)
    if not body:
        return []
    return [re.search(r"(\w+)\s*(?:\[[^\]]*\])*\s*$", name)[1]
            for member in body[1].split(";") if member.strip() for name in member.split(",")]


def writers(tree, fields):
    """For each field of struct core, the folders with an assignment to it or to what is in it."""
    target = re.compile(r"\b(?:c|core)->(\w+)((?:->|\.|\[[^\]]*\]|\w)*)\s*"
                        r"(?:[-+*/%&|^]|<<|>>)?(?:=(?!=)|\+\+|--)"
                        r"|(?:\+\+|--)(?:c|core)->(\w+)()")
    found = {name: set() for name in fields}
    for path, _, _, body in bodies(tree):
        for m in target.finditer(body):
            # What a pointer in it leads to (c->client[i]->x) is that thing's, not the core's.
            if (m[1] or m[3]) in found and "->" not in m[2 if m[1] else 4]:
                found[m[1] or m[3]].add(floor_of(path))
    return found


def state(tree, rule):
    text = tree.texts.get(STATE, "")
    fields = core_fields(text)
    if not fields:
        return "no struct core in " + STATE
    shared = {name: by for name, by in writers(tree, fields).items() if len(by - {"core"}) > 1}
    if len(fields) > FIELDS_MAX:
        tree.find(STATE, 1, rule, f"struct core has {len(fields)} fields, at most {FIELDS_MAX}")
    if len(shared) > SHARED_MAX:
        tree.find(STATE, 1, rule, f"{len(shared)} fields of struct core are written by more than "
                  f"one folder, at most {SHARED_MAX}: {' '.join(sorted(shared))}")
    if text.count("\n") > STATE_LINES:
        tree.find(STATE, 1, rule, f"{text.count(chr(10))} lines, at most {STATE_LINES}")
    print(f"# struct core: {len(fields)} fields, {len(shared)} written by more than one folder: "
          + ", ".join(f"{name} ({' '.join(sorted(by))})" for name, by in sorted(shared.items())))
    return None
