"""Documents against code: files, routes, commands, limits and step tables that a page names are there, and the reverse."""
import re

from tree import code_only, line_of

# Pages that teach by examples, or tell of the past, name things that need not exist.
EXAMPLES = ("docs/style.md", "CHANGELOG.md")
FOLDERS = "base|oci|seccomp|cgroups|rootfs|network|runtime|daemon|tools|kernels|clients|packaging|docs|tests|cmake"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./*-]*|[\w-]+\.(?:md|json|txt))`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def pages(tree):
    return [path for path in tree.files(".md") if path not in EXAMPLES]


def check_paths(tree):
    for page in pages(tree):
        text = tree.text(page)
        for match in PATH.finditer(text):
            name = match.group(1)
            found = list(tree.root.glob(name)) or list((tree.root / page).parent.glob(name)) if "*" in name else \
                tree.exists(name) or (tree.root / page).parent.joinpath(name).exists()
            if not found:
                yield f"{page}:{line_of(text, match.start())}: there is no {name}"
        for match in LINK.finditer(text):
            if not (tree.root / page).parent.joinpath(match.group(1)).exists():
                yield f"{page}:{line_of(text, match.start())}: there is no {match.group(1)}"


# --- routes

ROUTE_ROW = re.compile(r'\{\s*"(GET|POST|PUT|PATCH|DELETE|HEAD)"\s*,\s*"(/[^"]*)"')
ROUTE_HEADING = re.compile(r"^#{2,4} ((?:GET|POST|PUT|PATCH|DELETE|HEAD)(?:/(?:GET|POST|PUT|PATCH|DELETE|HEAD))*) (/\S*)", re.MULTILINE)


def check_routes(tree):
    if not tree.exists("daemon/routes.cc"):
        yield "daemon/routes.cc: missing"
        return
    coded = set(ROUTE_ROW.findall(tree.text("daemon/routes.cc")))
    documented = {(method, path) for methods, path in ROUTE_HEADING.findall(tree.text("docs/api.md"))
                  for method in methods.split("/")}
    if not coded:
        yield "daemon/routes.cc: no route found"
    for method, path in sorted(coded - documented):
        yield f"docs/api.md: no heading for {method} {path}"
    for method, path in sorted(documented - coded):
        yield f"docs/api.md: {method} {path} is not in daemon/routes.cc"


# --- commands of the CLI

COMMAND_TABLE = re.compile(r"\bkCommands\[\]\s*=\s*\{(.*?)\n\};", re.DOTALL)
COMMAND_ROW = re.compile(r'^\s*\{\s*"([a-z][a-z-]*)"', re.MULTILINE)
COMMAND_USE = re.compile(r"(?:^\s*|[`$|(]\s*|sudo )hutch (?:--?[a-z-]+(?:[ =]\S+)? )*([a-z][a-z-]*)\b", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]+`|^    [^\n]*$", re.DOTALL | re.MULTILINE)


def check_commands(tree):
    commands = set()
    for path in tree.files(".cc", under=["tools/"]):
        for table in COMMAND_TABLE.findall(tree.text(path)):
            commands.update(COMMAND_ROW.findall(table))
    if not commands:
        yield "tools/: no kCommands table found"
        return
    used = set()
    for page in pages(tree):
        for block in CODE.findall(tree.text(page)):
            for name in COMMAND_USE.findall(block.strip("`").removeprefix("    ")):
                used.add(name)
                if name not in commands:
                    yield f"{page}: `hutch {name}` is not a command"
    for name in sorted(commands - used):
        yield f"docs: nothing says what `hutch {name}` does"


# --- limits

CONSTANT = re.compile(r"^\s*inline constexpr [\w:]+ (k\w+) = ([^;]+);", re.MULTILINE)
TEST_NAME = re.compile(r"\b\w*TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def number(expression):
    """The value of a constant expression of integers, or None."""
    plain = re.sub(r"\b(0x[0-9a-fA-F]+|\d[\d']*(?:\.\d+)?)[uUlLzZ]*\b", lambda m: m.group(1).replace("'", ""), expression)
    if not re.fullmatch(r"[\dxa-fA-F.\s()+*/<-]+", plain):
        return None
    return eval(plain, {"__builtins__": {}})  # digits and operators only, as matched above


def table_rows(text):
    for match in re.finditer(r"^\|(.+)\|\s*$", text, re.MULTILINE):
        yield [cell.strip().strip("`") for cell in match.group(1).split("|")]


def check_limits(tree):
    headers = [path for path in tree.files(".h") if path.endswith("/limits.h")]
    if not headers:
        yield "daemon/limits.h: missing"
        return
    coded = {name: value for path in headers for name, value in CONSTANT.findall(code_only(tree.text(path)))}
    documented = {row[0]: row for row in table_rows(tree.text("docs/limits.md")) if re.match(r"k[A-Z]", row[0])}
    tests = {f"{suite}.{name}" for path in tree.files(".cc", under=["tests/"]) for suite, name in TEST_NAME.findall(tree.text(path))}
    for name, value in coded.items():
        if name not in documented:
            yield f"docs/limits.md: no row for {name}"
            continue
        row = documented[name]
        if len(row) < 4 or not row[2]:
            yield f"docs/limits.md: {name} needs value, unit, test"
        elif number(value) is not None and number(row[1]) != number(value):
            yield f"docs/limits.md: {name} is {value.strip()}, the page says {row[1]}"
        elif row[3] not in tests:
            yield f"docs/limits.md: {name} names {row[3] or 'no test'}, which is not a test"
    for name in sorted(set(documented) - set(coded)):
        yield f"docs/limits.md: {name} is in no limits.h"


# --- step tables

STEP_TABLE = re.compile(r"\bStepRow<\w+>\s+(k\w+)\[\]\s*=\s*\{(.*?)\n\};", re.DOTALL)
STEP_ROW = re.compile(r'\{\s*"([^"]+)"\s*,\s*(\w+)\s*,\s*(\w+)')


def check_steps(tree):
    """docs/architecture.md: under the line that names the table in backticks, a table of name, run, undo in the same order."""
    if not tree.exists("docs/architecture.md"):
        yield "docs/architecture.md: missing"
        return
    page = tree.text("docs/architecture.md")
    for path in tree.files(".cc", under=["runtime/"]):
        for name, body in STEP_TABLE.findall(tree.text(path)):
            coded = [list(row) for row in STEP_ROW.findall(body)]
            at = page.find(f"`{name}`")
            if at < 0:
                yield f"docs/architecture.md: no copy of {name} ({path})"
                continue
            table = re.search(r"^\|.*?(?=\n[^|]|\Z)", page[at:], re.DOTALL | re.MULTILINE)
            rows = [row[:3] for row in table_rows(table.group(0))][2:] if table else []
            rows = [[cell if cell not in ("–", "-", "") else "nullptr" for cell in row] for row in rows]
            if rows != coded:
                yield f"docs/architecture.md: its copy of {name} differs from {path}: {first_difference(coded, rows)}"


def first_difference(coded, rows):
    for at in range(max(len(coded), len(rows))):
        left, right = coded[at:at + 1], rows[at:at + 1]
        if left != right:
            return f"row {at + 1} is {left[0] if left else 'absent'} in the code, {right[0] if right else 'absent'} on the page"
    return "no difference"
