"""The floors of the core (tierd/core/signal.h): a function calls its own floor and those below it.
What runs upward goes through the table of signals, which core.c wires, and no other way. On a floor
files call each other one way, too, but for those that are one object.

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
# struct core: how many fields it may have, which only shrinks. Each is written by one folder, and
# by the files that make and close the core: it belongs in a struct of that folder. METRICS are
# independent numbers in one list (metrics.def): this is asked of each counter.
STATE = CORE + "state.h"
FIELDS_MAX = 48
METRICS = "metrics"
STATE_LINES = 300
# Files that may call each other in circles, for they are one object. Folders end with a slash.
OBJECTS = {
    "the scheduler: its queues, its meters, the pools of what it lets go": ("io/",),
    "making room: who leaves, and what moves so that others may": (
        "place/evict.c", "place/evacuate.c"),
    "the store's log, one struct drive each": ("log/",),
    "how a page comes, by either path": ("move/",),
    "a put": ("op/put.c", "op/put_commit.c", "op/put_place.c"),
    "a stream": ("op/stream.c", "op/stream_end.c"),
    "a conversation and its lead": ("hint/conversation.c", "hint/lead.c"),
    "one recount, each part of which tells audit.c": ("audit/",),
    "the core itself: how clients and contexts begin and end": (
        "core.c", "context.c", "leave.c"),
}


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


def file_calls(all_bodies):
    """For each .c file, those whose functions it calls or takes the address of. What an inline
    function of a header calls is called by who calls that one."""
    static = re.compile(r"\s*static\b")
    home, inline, own = {}, {}, {}
    for path, name, _, body in all_bodies:
        if path.endswith(".h"):
            inline[name] = names_in(body)
        elif static.match(body):
            own.setdefault(path, set()).add(name)
        else:
            home[name] = path
    calls = {path: set() for path, *_ in all_bodies if path.endswith(".c")}
    for path, _, _, body in all_bodies:
        if path not in calls:
            continue
        left, seen = names_in(body) - own.get(path, set()), set()
        while left:
            name = left.pop()
            seen.add(name)
            left |= inline.get(name, set()) - seen
            if home.get(name, path) != path:
                calls[path].add(home[name])
    return calls


def circles_of(calls):
    """The sets of files that reach each other by calls, sorted; those of one file left out."""
    reach = {}
    for start in calls:
        reach[start], left = set(), [start]
        while left:
            new = calls[left.pop()] - reach[start]
            reach[start] |= new
            left += new
    found = {frozenset(b for b in reach[a] if a in reach[b]) for a in calls if a in reach[a]}
    return sorted(sorted(circle) for circle in found)


def is_of(path, members):
    name = path[len(CORE):]
    return any(name.startswith(m) if m.endswith("/") else name == m for m in members)


def circles(tree, rule):
    all_bodies = list(bodies(tree))
    if not any("/" in path[len(CORE):] for path, *_ in all_bodies):
        return "no folders in tierd/core"
    calls, needed, larger = file_calls(all_bodies), set(), 0
    all_circles = circles_of(calls)
    for circle in all_circles:
        of = {name: sum(is_of(path, members) for path in circle)
              for name, members in OBJECTS.items()}
        needed |= {name for name, files in of.items() if files > 1}
        if len(circle) not in of.values():
            larger += 1
            tree.find(circle[0], 1, rule, "a circle of calls that is no one object: "
                      + " ".join(path[len(CORE):] for path in circle))
    for name, members in OBJECTS.items():
        if name not in needed and sum(is_of(path, members) for path in calls) > 1:
            tree.find(CORE + "signal.h", 1, rule, f"no circle of calls needs the object: {name} "
                      "(tests/tidy/floors.py)")
    print(f"# core: {len(calls)} files, {len(all_circles)} circles of calls, the largest of "
          f"{max(map(len, all_circles), default=0)}; {larger} circles larger than one object")
    return None


def core_fields(text):
    """Names of the members of struct core."""
    body = re.search(r"^struct core \{\n(.*?)^\};", csource.strip(text), re.DOTALL | re.MULTILINE)
    if not body:
        return []
    return [re.search(r"(\w+)\s*(?:\[[^\]]*\])*\s*$", name)[1]
            for member in body[1].split(";") if member.strip() for name in member.split(",")]


def writers(tree, fields):
    """For each field of struct core, and each counter of METRICS, the folders with an assignment to
    it or to what is in it, by its name or by a pointer to it that the function has."""
    change = r"\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    inside = r"((?:->|\.|\[[^\]]*\]|\w)*)"
    target = re.compile(r"\b(?:c|core)->(\w+)" + inside + change
                        + r"|(?:\+\+|--)(?:c|core)->(\w+)" + inside
                        + r"|\bmem(?:set|cpy|move)\(&(?:c|core)->(\w+)" + inside)
    alias = re.compile(r"\b(\w+) = &(?:c|core)->(\w+)\s*(?:\[[^\]]*\])?\s*[,;]")
    found = {}
    for path, _, _, body in bodies(tree):
        hits = [[g for g in m.groups() if g is not None] for m in target.finditer(body)]
        for m in alias.finditer(body):
            hits += [(m[2], "." + h[1]) for h in
                     re.finditer(rf"(?<![\w.>]){m[1]}->" + inside + change, body)]
        for name, rest in hits:
            # What a pointer in it leads to (c->client[i]->x) is that thing's, not the core's.
            if name in fields and "->" not in rest:
                of = name + rest if name == METRICS else name
                found.setdefault(of, set()).add(floor_of(path))
    return found


def state(tree, rule):
    text = tree.texts.get(STATE, "")
    fields = core_fields(text)
    if not fields:
        return "no struct core in " + STATE
    shared = {name: by for name, by in writers(tree, fields).items() if len(by - {"core"}) > 1}
    if len(fields) > FIELDS_MAX:
        tree.find(STATE, 1, rule, f"struct core has {len(fields)} fields, at most {FIELDS_MAX}")
    for name, by in sorted(shared.items()):
        tree.find(STATE, 1, rule, f"{name} of struct core is written by more than one folder: "
                  + " ".join(sorted(by)))
    if text.count("\n") > STATE_LINES:
        tree.find(STATE, 1, rule, f"{text.count(chr(10))} lines, at most {STATE_LINES}")
    print(f"# struct core: {len(fields)} fields, {len(shared)} written by more than one folder")
    return None
