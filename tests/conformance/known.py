"""Where a runtime differs from the specification, or from what all runtimes' command lines share, and why.

A case in this table must fail: when it passes, the row is to be taken out. Nothing is skipped by it."""
import fnmatch
from typing import NamedTuple

import runtime


class Known(NamedTuple):
    program: str
    before: tuple  # first version that has it; () for no version known
    where: str     # "v2", "hybrid" or "*"
    cases: str     # shell pattern on module.Class.test
    reason: str


TABLE = [
]


def rows():
    program, version = runtime.identity()
    where = "v2" if runtime.is_unified() else "hybrid"
    return [row for row in TABLE
            if row.program == program and (not row.before or version < row.before) and row.where in ("*", where)]


def difference(case):
    return next((row for row in rows() if fnmatch.fnmatchcase(case, row.cases)), None)
