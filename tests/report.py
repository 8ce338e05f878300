#!/usr/bin/env python3
"""Reads the JUnit files of a test run and judges it: tests/report.py [--closing] ALLOWED_SKIPS FILE...

Prints each failure with the end of its output and each skip with its reason. A skip without a line in the allowed list
is a failure; so is a disabled test, a file that cannot be read, and a file in which no test ran. With --closing the last
line is "N passed, N failed, N skipped". Exit code 0 only when nothing failed and something passed.
"""
import fnmatch
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

OUTPUT_TAIL_LINES = 60
PASSED_LINE = re.compile(r"\.\.\. ok$|^\[( RUN {6}|       OK )\] ")  # of a program of many cases: what did not fail says little
UNITTEST_SKIP = re.compile(r"^(test_\w+) \([^)]*\)(?:\n[^\n]*)? \.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)


def read_allowed(path):
    """Each line: a name pattern (shell style), white space, the reason."""
    rows = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(" ")
        if not reason.strip():
            raise SystemExit(f"{path}: no reason given for {pattern}")
        rows.append((pattern, reason.strip()))
    return rows


def read_cases(path):
    """Yields (name, outcome, text) with outcome passed, failed or skipped."""
    try:
        root = xml.parse(path).getroot()
    except (OSError, xml.ParseError) as error:
        yield f"{path}", "failed", f"no result of this run: {error}"
        return
    cases = list(root.iter("testcase"))
    if not cases:
        yield f"{path}", "failed", "no test ran"
    for case in cases:
        text = "\n".join(filter(None, (child.text for child in case))) or ""
        status = case.get("status")
        if case.find("failure") is not None or status == "fail":
            yield case.get("name"), "failed", text
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            yield case.get("name"), "skipped", text
        else:
            yield case.get("name"), "passed", text
            for name, reason in UNITTEST_SKIP.findall(text):  # a program of many cases, told by its output
                yield f"{case.get('name')}/{name}", "skipped", reason


def skip_reason(text):
    """The line a skipped GoogleTest case gives as its reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for at, line in enumerate(lines):
        if line.endswith(": Skipped") and at + 1 < len(lines):
            return lines[at + 1]
    return lines[-1] if lines else "no reason given"


def judge(allowed, paths, out=sys.stdout, failed=None):
    """The counts by outcome; the names of what failed are appended to `failed`."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed = [] if failed is None else failed
    for path in paths:
        stage = Path(path).stem
        for name, outcome, text in read_cases(path):
            full = f"{stage}/{name}"
            if outcome == "skipped" and not any(fnmatch.fnmatchcase(full, pattern) for pattern, _ in allowed):
                outcome, text = "failed", f"skipped without a line in the list of allowed skips\n{text}"
            counts[outcome] += 1
            if outcome == "skipped":
                print(f"skipped: {full}: {skip_reason(text)}", file=out)
            elif outcome == "failed":
                tail = [line for line in text.splitlines() if not PASSED_LINE.search(line)][-OUTPUT_TAIL_LINES:]
                print(f"FAILED: {full}", *("    " + line for line in tail), sep="\n", file=out)
                failed.append(full)
    return counts


def main(arguments):
    closing = "--closing" in arguments
    arguments = [argument for argument in arguments if argument != "--closing"]
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    failed = []
    counts = judge(read_allowed(arguments[0]), arguments[1:], failed=failed)
    if closing:
        for name in failed:  # once more where the end of a log is read
            print(f"failed: {name}")
        print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
