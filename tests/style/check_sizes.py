"""Lengths and depths of docs/style.md section 9."""
import re

SOURCE_LINES, HEADER_LINES, FUNCTION_LINES, DEPTH = 600, 200, 70, 3

# What may stand between a function's closing parenthesis and its opening brace.
BEFORE_BODY = re.compile(r"\)\s*(const|noexcept|override|final|mutable|&&?|->\s*[\w:<>,&*\s]+|:\s*[^;{}]*(\{[^{}]*\}[^;{}]*)*)*\s*$", re.DOTALL)
CONTROL = re.compile(r"\b(if|for|while|switch|catch)\s*(constexpr\s*)?\($")


def opening(code, position):
    """Whether the brace at `position` opens a function's body (not a table, class, namespace or control block)."""
    start = max(code.rfind(mark, 0, position) for mark in ";}{#")
    head = code[start + 1:position]
    return "(" in head and "=" not in head.split("(")[0] and BEFORE_BODY.search(head) is not None


def functions(code):
    """Yields (first line, last line, greatest depth of blocks inside) for each outermost function body."""
    stack, begin, depth = [], None, 0
    line = 1
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            kind = "block"
            if begin is None and opening(code, position):
                kind, begin, depth = "function", (line, len(stack)), 0
            elif begin is not None and is_control(code, position):
                kind = "control"
            stack.append(kind)
            if begin is not None:
                depth = max(depth, stack[begin[1]:].count("control"))
        elif char == "}" and stack:
            if stack.pop() == "function":
                yield begin[0], line, depth
                begin = None


def is_control(code, position):
    """Whether the brace belongs to if, else, for, while, switch or do."""
    before = code[:position].rstrip()
    if re.search(r"\b(else|do)$", before[-8:]):
        return True
    if not before.endswith(")"):
        return False
    level = 0
    for at in range(len(before) - 1, max(-1, len(before) - 2000), -1):
        level += {")": 1, "(": -1}.get(before[at], 0)
        if level == 0:
            return CONTROL.search(before[max(0, at - 20):at + 1]) is not None
    return False


def check(tree):
    for path in tree.files(".cc", ".h", ".py", ".sh") + [p for p in tree.files() if is_script(tree, p)]:
        limit = HEADER_LINES if path.endswith(".h") else SOURCE_LINES
        count = len(tree.lines(path))
        if count > limit:
            yield f"{path}: {count} lines, the limit is {limit}"
    for path in tree.files(".cc", ".h"):
        for first, last, depth in functions(tree.code(path)):
            if last - first + 1 > FUNCTION_LINES:
                yield f"{path}:{first}: a function of {last - first + 1} lines, the limit is {FUNCTION_LINES}"
            if depth > DEPTH:
                yield f"{path}:{first}: blocks nested {depth} deep, the limit is {DEPTH}"


def is_script(tree, path):
    name = path.rsplit("/", 1)[-1]
    if "." in name and not path.startswith(".ci/"):
        return False
    with open(tree.root / path, "rb") as file:
        return file.read(2) == b"#!"
