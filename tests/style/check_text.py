"""Text that may not be committed, the history's subjects, and formatting."""
import re
import subprocess
from pathlib import Path

SUBJECT_LENGTH = 72
# In the history before the check was, and not to be mended there.
KNOWN_SUBJECTS = {"runtime: a tenant's OOM score is raised by the agent; all kernel tests pass"}
# Parents of a checkout that say nothing about the machine.
USUAL_PARENTS = {"/", "/root", "/home", "/tmp", "/opt", "/srv", "/usr/src", "/usr/local/src", "/var/tmp", "/mnt", "/src", "/build"}
HOSTS = re.compile(
    r"\b((deb|ftp|security|snapshot|mirror)\w*(\.\w+)*\.debian\.org|pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org|"
    r"deb\.nodesource\.com|proxy\.golang\.org|static\.crates\.io)\b")
HOME = re.compile(r"(?<![\w/.])/home/(?!user\b|agent\b|sandbox\b)\w+/")


def neighbours(root):
    """The checkout and what lies beside it, by absolute path; nothing where the parent is a usual place."""
    parent = root.resolve().parent
    if str(parent) in USUAL_PARENTS or str(parent.parent) == "/home":
        return None
    names = "|".join(re.escape(path.name) for path in parent.iterdir())
    return re.compile(rf"(?<![\w.]){re.escape(str(parent))}/({names})\b")


def check_machine(tree):
    own = neighbours(tree.root)
    for path in tree.files():
        for number, line in enumerate(tree.lines(path), 1):
            if own and own.search(line) or HOME.search(line):
                yield f"{path}:{number}: a path of one machine"
            if HOSTS.search(line):
                yield f"{path}:{number}: the host of a package registry; take it from the machine's own configuration"


def check_commits(tree):
    done = subprocess.run(["git", "-c", "safe.directory=*", "log", "--format=%h %s"], cwd=tree.root, capture_output=True,
                          text=True, check=False)
    yield from check_subjects(done.stdout.splitlines() if done.returncode == 0 else [])


def check_subjects(lines):
    for line in lines:
        commit, _, subject = line.partition(" ")
        if subject in KNOWN_SUBJECTS:
            continue
        if len(subject) > SUBJECT_LENGTH:
            yield f"{commit}: a subject of {len(subject)} characters, the limit is {SUBJECT_LENGTH}: {subject}"
        if subject.endswith("."):
            yield f"{commit}: a subject ends with a full stop: {subject}"


def check_format(tree):
    paths = tree.files(".cc", ".h")
    for start in range(0, len(paths), 40):
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths[start:start + 40]], cwd=tree.root,
                              capture_output=True, text=True, check=False)
        unformatted = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error: code should be clang-formatted", done.stderr, re.MULTILINE)))
        for path in unformatted:
            yield f"{path}: clang-format would change it"
        if done.returncode != 0 and not unformatted:
            yield f"clang-format: {done.stderr.strip()}"
