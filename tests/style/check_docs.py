"""Documents against code: files, routes, commands, limits and step tables that a page names are there, and the reverse."""
import re

from tree import code_only, line_of

# Pages that teach by examples, or tell of the past, name things that need not exist.
EXAMPLES = ("docs/style.md", "CHANGELOG.md")
FOLDERS = "base|oci|seccomp|cgroups|rootfs|network|files|runtime|daemon|tools|kernels|clients|packaging|docs|tests|cmake"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./*-]*|[\w-]+\.md)`")
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

ROUTE_ROW = re.compile(r'\{\s*"(GET|POST|PUT|PATCH|DELETE|HEAD|ANY)"\s*,\s*"(/[^"]*)"')
ROUTE_HEADING = re.compile(r"^#{2,4} ((?:GET|POST|PUT|PATCH|DELETE|HEAD|ANY)(?:/(?:GET|POST|PUT|PATCH|DELETE|HEAD))*) (/\S*)", re.MULTILINE)


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

CONSTANT = re.compile(r"^\s*inline constexpr [\w:]+\s+(k\w+)\s*(?:=\s*([^;]+)|\{([^}]+)\});", re.MULTILINE)
TEST_NAME = re.compile(r"\b\w*TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
REACHED_BY_CLIENTS = ("kMax", "kMin")  # these must have a test; a number that only paces our own work may say – instead


def number(expression):
    """The value of a constant expression of integers, or None."""
    plain = re.sub(r"\b(0x[0-9a-fA-F']+|\d[\d']*)[uUlLzZ]*\b", lambda m: m.group(1).replace("'", ""), expression)
    if not re.fullmatch(r"[\dxa-fA-F\s()+*/<-]+", plain):
        return None
    return eval(plain.replace("/", "//"), {"__builtins__": {}})  # digits and operators only, as matched above


def table_rows(text):
    for match in re.finditer(r"^\|(.+)\|\s*$", text, re.MULTILINE):
        yield [cell.strip().strip("`") for cell in match.group(1).split("|")]


def limit_sections(page):
    """{header: {constant: row}} from the sections of docs/limits.md, each headed by the header's name in backticks."""
    sections = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = re.match(r"`([^`]+/limits\.h)`", part)
        if heading:
            sections[heading.group(1)] = {row[0]: row for row in table_rows(part) if re.match(r"k[A-Z]", row[0])}
    return sections


def check_limits(tree):
    headers = [path for path in tree.files(".h") if path.endswith("/limits.h")]
    if not headers:
        yield "daemon/limits.h: missing"
    documented = limit_sections(tree.text("docs/limits.md"))
    tests = {f"{suite}.{name}" for path in tree.files(".cc", under=["tests/"]) for suite, name in TEST_NAME.findall(tree.text(path))}
    for header in headers:
        coded = {name: (value or braced).strip() for name, value, braced in CONSTANT.findall(code_only(tree.text(header)))}
        rows = documented.pop(header, {})
        for name, value in coded.items():
            yield from check_limit(header, name, value, rows.pop(name, None), tests)
        for name in rows:
            yield f"docs/limits.md: {name} is not in {header}"
    for header in documented:
        yield f"docs/limits.md: there is no {header}"


def check_limit(header, name, value, row, tests):
    if row is None:
        yield f"docs/limits.md: no row for {name} of {header}"
    elif len(row) < 4 or not row[2]:
        yield f"docs/limits.md: {name} needs value, unit, test"
    elif number(value) is not None and number(row[1]) != number(value):
        yield f"docs/limits.md: {name} is {value} in {header}, the page says {row[1]}"
    elif row[3] == "–" and not name.startswith(REACHED_BY_CLIENTS):
        return
    elif row[3] not in tests:
        yield f"docs/limits.md: {name} of {header} names {row[3] or 'no test'}, which is not a test"


# --- step tables

STEP_TABLE = re.compile(r"\bStepRow<\w+>\s+(k\w+)\[\]\s*=\s*\{(.*?)\n\};", re.DOTALL)
STEP_ROW = re.compile(r'\{\s*"([^"]+)"\s*,\s*\w+\s*,\s*(\w+)')
ENUM = re.compile(r"enum class (\w+Step)\b[^{]*\{(.*?)\}", re.DOTALL)
NAME_LIST = re.compile(r"\bk(\w+Step)Names\[\]\s*=\s*\{(.*?)\}", re.DOTALL)
CHILD_ROW = re.compile(r"\{\s*(\w+Step)::(k\w+)\s*,")


def child_steps(tree):
    """{enum: the names of its steps, in the order of the child's tables}"""
    names, order = {}, {}
    for path in tree.files(".h", under=["runtime/"]):
        text = code_without_comments(tree.text(path))
        enums = {enum: re.findall(r"\bk\w+", body) for enum, body in ENUM.findall(text)}
        for enum, body in NAME_LIST.findall(text):
            names[enum] = dict(zip(enums.get(enum, []), re.findall(r'"([^"]+)"', body)))
    for path in tree.files("_child.cc", under=["runtime/"]):
        for enum, step in CHILD_ROW.findall(code_without_comments(tree.text(path))):
            if enum in names:
                order.setdefault(enum, []).append(names[enum].get(step, step))
    return order


def check_steps(tree):
    """docs/architecture.md has a table with the same names in the same order as each create table, – in the second column
    where nothing is undone; and the names of the child's steps in one sentence each, in order, behind commas."""
    if not tree.exists("docs/architecture.md"):
        yield "docs/architecture.md: missing"
        return
    page = tree.text("docs/architecture.md")
    tables = [list(table_rows(block))[2:] for block in re.findall(r"(?:^\|.*\n?)+", page, re.MULTILINE)]
    copies = [[row[0] for row in table] for table in tables]
    for path in tree.files(".cc", under=["runtime/"]):
        for name, body in STEP_TABLE.findall(code_without_comments(tree.text(path))):
            rows = STEP_ROW.findall(body)
            if [row[0] for row in rows] not in copies:
                yield f"docs/architecture.md: no table with the rows of {name} ({path}): {', '.join(row[0] for row in rows)}"
            elif any(undo != "nullptr" for _, undo in rows):
                copy = tables[copies.index([row[0] for row in rows])]
                for (step, undo), row in zip(rows, copy):
                    if (undo == "nullptr") != row[1].startswith("–"):
                        yield f"docs/architecture.md: {step}: the page says {row[1]}, {path} says {undo}"
    prose = " ".join(re.sub(r"\([^)]*\)|and then, with the plan:|then, with the plan:", "", page).split())
    for enum, steps in child_steps(tree).items():
        if not re.search(r"[,;:]? ".join(re.escape(step) for step in steps), prose):
            yield f"docs/architecture.md: the steps of {enum} are not there in this order: {', '.join(steps)}"


def code_without_comments(text):
    return re.sub(r"//[^\n]*", "", text)
