"""What runs after clone calls the kernel and nothing else: undefined symbols of *_child.cc objects, docs/style.md section 7."""
import subprocess
from pathlib import Path

from tree import read_table

SYMBOLS = Path(__file__).resolve().parent / "child_symbols.txt"


def symbols(path, kind):
    done = subprocess.run(["nm", "-P", kind, str(path)], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def check(tree):
    objects = sorted((tree.build or tree.root / "build/release").rglob("*_child.cc.o"))
    built = {path.name for path in objects}
    for source in tree.files("_child.cc"):
        if Path(source).name + ".o" not in built:
            yield f"{source}: was not built, so its symbols were not checked"
    allowed = {row.split()[0] for row in read_table(SYMBOLS)}
    ours = set().union(*(symbols(path, "--defined-only") for path in objects)) if objects else set()
    for path in objects:
        for symbol in sorted(symbols(path, "--undefined-only") - allowed - ours):
            yield f"{path.name[:-2]}: needs {symbol}, which is not in tests/style/child_symbols.txt"
