"""Words that may not appear: throw, a system call's result cast away, a string path into an untrusted root."""
import re
from pathlib import Path

from tree import line_of, read_table

OURS = ["base/", "oci/", "seccomp/", "cgroups/", "rootfs/", "network/", "files/", "runtime/", "daemon/", "tools/"]
PATH_CALLS = Path(__file__).resolve().parent / "path_calls.txt"

RULES = [
    (re.compile(r"\bthrow\b"), "errors are values: nothing of ours throws"),
    (re.compile(r"\(\s*void\s*\)\s*:{0,2}[A-Za-z_][\w:.>-]*\s*\("), "a result cast to void: use IgnoreError, or handle it"),
    (re.compile(r"static_cast<\s*void\s*>\s*\(\s*:{0,2}[A-Za-z_][\w:.>-]*\s*\("), "a result cast to void: use IgnoreError, or handle it"),
    (re.compile(r"\b(system|mktemp|tmpnam|strcpy|strcat|sprintf|gets)\s*\("), "an unsafe C function"),
    (re.compile(r"\b(fork|vfork|pthread_create)\s*\("), "processes are made by the spawn server only"),
]
SPAWN_ONLY = "processes are made by the spawn server only"

# Calls that resolve a path. Under a container's or image's root they are RootedPath's business alone.
PATH_CALL = re.compile(
    r"(?<![\w.>])(?:::|sys::)?(open|openat|openat2|Openat2|creat|mkdir|mkdirat|mknod|mknodat|symlink|symlinkat|link|linkat|unlink|"
    r"unlinkat|rmdir|rename|renameat|renameat2|chmod|fchmodat|chown|lchown|fchownat|utimensat|readlink|readlinkat|stat|lstat|"
    r"fstatat|statx|truncate|setxattr|lsetxattr|getxattr|lgetxattr)\s*\(")


def check_idioms(tree):
    for path in tree.files(".cc", ".h", under=OURS):
        code = tree.code(path)
        for pattern, message in RULES:
            for match in pattern.finditer(code):
                if message == SPAWN_ONLY and path in ("runtime/spawner.cc", "runtime/spawner_child.cc"):
                    continue
                yield f"{path}:{line_of(code, match.start())}: {message}"


def check_rooted_paths(tree):
    """rootfs/ and runtime/: each file and call that resolves a path is listed in path_calls.txt with its reason."""
    listed = {}
    for row in read_table(PATH_CALLS):
        path, calls, *reason = row.split(None, 2)
        if not reason:
            yield f"tests/style/path_calls.txt: no reason for {path}"
        listed[path] = set(calls.split(","))
    for path in tree.files(".cc", ".h", under=["rootfs/", "runtime/"]):
        code = tree.code(path)
        allowed = listed.pop(path, set())
        used = set()
        for match in PATH_CALL.finditer(code):
            used.add(match.group(1))
            if match.group(1) not in allowed and not is_declaration(code, match):
                yield (f"{path}:{line_of(code, match.start())}: {match.group(1)}() resolves a path; use base/rooted_path.h, "
                       "or list it in tests/style/path_calls.txt with the reason")
        for call in sorted(allowed - used):
            yield f"tests/style/path_calls.txt: {path} no longer calls {call}()"
    if tree.exists("tests/style/path_calls.txt"):
        for path in listed:
            yield f"tests/style/path_calls.txt: there is no {path}"


def is_declaration(code, match):
    """`struct stat st(...)` and a member function of the same name are no calls."""
    before = code[max(0, match.start() - 24):match.start()]
    return re.search(r"\bstruct\s+$", before) is not None
