"""The checkout as the style checks see it: which files there are, and their text without comments and literals."""
import re
import subprocess
from functools import lru_cache
from pathlib import Path

SAMPLES = "tests/style/samples/"
LEFT_OUT = (".git/", "build/", ".cache/", SAMPLES)

_LITERALS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\s\\]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def _blank(match):
    """Keeps the line count; a string becomes "" and a comment nothing."""
    text = match.group(0)
    keep = "" if text.startswith("/") else '""' if text[0] in '"R' else "0"
    return keep + "\n" * text.count("\n")


@lru_cache(maxsize=None)
def code_only(text):
    return _LITERALS.sub(_blank, text)


class Tree:
    def __init__(self, root, build=None):
        self.root = Path(root)
        self.build = build
        self._files = None

    def files(self, *endings, under=()):
        """Paths relative to the root, sorted: all, or those with one of the endings and below one of the folders."""
        if self._files is None:
            self._files = self._list()
        return [path for path in self._files
                if (not endings or path.endswith(endings)) and (not under or path.startswith(tuple(under)))]

    def _list(self):
        done = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                              cwd=self.root, capture_output=True, check=False)
        if done.returncode == 0 and (self.root / ".git").exists():
            names = done.stdout.decode().split("\0")
        else:
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        return sorted(name for name in names if name and not name.startswith(LEFT_OUT) and (self.root / name).is_file())

    def exists(self, path):
        return (self.root / path).exists()

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def code(self, path):
        return code_only(self.text(path))

    def lines(self, path):
        return self.text(path).splitlines()


def read_table(path):
    """Rows of a list file: the words of each line that is not blank or a comment; the last word may be a sentence."""
    rows = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            rows.append(line)
    return rows


def line_of(text, position):
    return text.count("\n", 0, position) + 1
