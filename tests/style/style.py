#!/usr/bin/env python3
"""Runs one style check on the checkout: tests/style/style.py CHECK [--build DIR]; prints findings, exits 1 on any."""
import sys
from pathlib import Path

import check_child
import check_docs
import check_idioms
import check_layers
import check_sizes
import check_text
from tree import Tree

# Each check takes a Tree and yields findings, "file:line: what is wrong".
CHECKS = {
    "layers": check_layers.check,
    "child_symbols": check_child.check,
    "sizes": check_sizes.check,
    "idioms": check_idioms.check_idioms,
    "rooted_paths": check_idioms.check_rooted_paths,
    "doc_paths": check_docs.check_paths,
    "doc_routes": check_docs.check_routes,
    "doc_commands": check_docs.check_commands,
    "doc_limits": check_docs.check_limits,
    "doc_steps": check_docs.check_steps,
    "machine": check_text.check_machine,
    "commits": check_text.check_commits,
    "format": check_text.check_format,
}


def main(arguments):
    if not arguments or arguments[0] not in CHECKS:
        print(__doc__, "checks: " + " ".join(CHECKS), sep="\n", file=sys.stderr)
        return 2
    build = Path(arguments[2]) if arguments[1:2] == ["--build"] else None
    findings = list(CHECKS[arguments[0]](Tree(Path(__file__).resolve().parents[2], build)))
    print(*findings, sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
