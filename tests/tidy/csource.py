"""Just enough of C for tests/tidy: strips comments and strings, finds functions, their parameters
and their nesting. It reads text only and never runs a compiler, so it also reads files that do not
compile here (kernel, CUDA).

SPDX-License-Identifier: Apache-2.0
"""
import re
from dataclasses import dataclass

CONTROL = re.compile(r"(?:\}\s*)?(?:if|else|for|while|do|switch)\b")
ATTRIBUTE = re.compile(r"__attribute__\s*\(|\b[A-Z][A-Z0-9_]{2,}\s*\(")
NAMESPACE = re.compile(r"\s*(?:namespace\b[\w:\s]*|extern\s*\"[^\"]*\"\s*)$")
NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


@dataclass
class Function:
    """A function definition; lines count from one, the length from its first line to the last."""
    name: str
    line: int
    length: int
    parameters: int
    nesting: int
    nesting_line: int


def strip(text):
    """The text with comments and the insides of strings blanked; lines stay where they are."""
    def blank(match):
        token = match[0]
        if token[0] in "\"'":
            return token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(blank, text)


def drop_directives(text):
    """Blanks preprocessor lines, and all branches of a conditional but the first, so that braces
    balance. What only C++ sees goes too."""
    lines = text.split("\n")
    skipping = []  # one entry per open conditional: is its current branch left out?
    continued = False
    for i, line in enumerate(lines):
        bare = line.strip()
        directive = bare.startswith("#") and not continued
        if directive:
            word = re.match(r"#\s*(\w*)", bare)[1]
            if word in ("if", "ifdef", "ifndef"):
                skipping.append(word == "ifdef" and "__cplusplus" in bare)
            elif word in ("else", "elif") and skipping:
                skipping[-1] = True
            elif word == "endif" and skipping:
                skipping.pop()
        if directive or continued:
            continued = bare.endswith("\\")
            lines[i] = ""
        elif any(skipping):
            lines[i] = ""
    return "\n".join(lines)


def closing(text, at):
    """The index of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text) - 1


def drop_attributes(head):
    """A declaration's head without attributes and attribute-like macros."""
    while True:
        match = ATTRIBUTE.search(head)
        if not match:
            return head
        end = closing(head, match.end() - 1)
        head = head[:match.start()] + " " + head[end + 1:]


def function_head(head):
    """(name, parameter count) when the text before an opening brace declares a function."""
    bare = drop_attributes(head).strip()
    match = NAME.search(bare)
    if not match or re.match(r"(typedef\s+)?(struct|union|enum)\s+\w*\s*$", bare):
        return None
    if "=" in bare[:match.start()]:
        return None
    end = closing(bare, match.end() - 1)
    inside = bare[match.end():end]
    depth, count = 0, 1
    for c in inside:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        count += c == "," and depth == 0
    if inside.strip() in ("", "void"):
        count = 0
    if re.search(r"\.\.\.\s*$", inside):
        count -= 1
    return match[1], count


def deepest(lines, first, last):
    """The deepest control statement between two lines, by braces and by indentation, and where."""
    best, where, depth, initializers = 0, first, 0, []
    for number in range(first, last + 1):
        line = lines[number - 1]
        tabs = len(line) - len(line.lstrip("\t"))
        level = tabs if CONTROL.match(line.lstrip()) else 0
        for i, c in enumerate(line):
            if c == "{":
                # An initializer or a compound literal is data, not control flow.
                data = re.search(r"[=,({]\s*$|\)\s*$|^\s*$", line[:i]) and not re.search(
                    r"\b(if|for|while|switch|list_each\w*)\b.*\)\s*$", line[:i])
                initializers.append(bool(data) and depth > 0 and bool(line[:i].strip()))
                depth += not initializers[-1]
            elif c == "}" and initializers:
                depth -= not initializers.pop()
        level = max(level, depth - 1)
        if level > best:
            best, where = level, number
    return best, where


def functions(text):
    """All function definitions of a C file."""
    bare = drop_directives(strip(text))
    lines = bare.split("\n")
    found, depth, head_start, current, line = [], 0, 0, None, 1
    for i, c in enumerate(bare):
        if c == "\n":
            line += 1
        elif c == "{":
            if depth == 0:
                head = bare[head_start:i]
                if NAMESPACE.match(head):
                    head_start = i + 1
                    continue
                declared = function_head(head)
                begin = line - head.lstrip().count("\n")
                current = (declared, begin, line) if declared else None
            depth += 1
        elif c == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if current:
                    (name, count), begin, body = current
                    nesting, where = deepest(lines, body, line)
                    found.append(Function(name, begin, line - begin + 1, count, nesting, where))
                current = None
                head_start = i + 1
        elif c == ";" and depth == 0:
            head_start = i + 1
    return found


def declarations(text):
    """(name, first line) of the function prototypes of a header."""
    bare = drop_directives(strip(text))
    found, depth, start = [], 0, 0
    for i, c in enumerate(bare):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(c, 0)
        if depth == 0 and c in ";}":
            statement = bare[start:i]
            head = function_head(statement) if c == ";" else None
            if head and not re.match(r"\s*typedef\b", statement):
                lead = len(statement) - len(statement.lstrip())
                found.append((head[0], bare.count("\n", 0, start + lead) + 1))
            start = i + 1
    return found


def includes(text):
    """(line, name, in quotes) of each #include."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*#\s*include\s+([<\"])([^>\"]+)[>\"]", line)
        if match:
            yield number, match[2], match[1] == '"'


def code_lines(text):
    """How many lines hold code."""
    return sum(1 for line in strip(text).split("\n") if line.strip())
