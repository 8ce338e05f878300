#!/usr/bin/env python3
"""Proves that each style check finds what it is for. Every file of samples/ is a small tree and what a check must say.

    check: layers                 which check
    finds: may not include        a part of a finding; or `clean` when nothing may be found
    --- seccomp/bad.cc            a file, up to the next such line; {host} and {home} stand for words that may not be committed
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_child
import check_idioms
import check_text
from style import CHECKS
from tree import Tree

HERE = Path(__file__).resolve().parent
WORDS = {"{host}": "deb." + "debian.org", "{home}": "/home/" + "somebody/"}


def read_sample(path):
    text = path.read_text(encoding="utf-8")
    for short, word in WORDS.items():
        text = text.replace(short, word)
    head, *parts = ("\n" + text).split("\n--- ")
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    return fields, {path: body for path, _, body in (part.partition("\n") for part in parts)}


class Samples(unittest.TestCase):
    def run_sample(self, sample):
        fields, files = read_sample(sample)
        with tempfile.TemporaryDirectory() as name:
            root = Path(name) / "checkout"
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text + "\n", encoding="utf-8")
            check_idioms.PATH_CALLS = root / "tests/style/path_calls.txt"
            if not check_idioms.PATH_CALLS.exists():
                check_idioms.PATH_CALLS = Path("/dev/null")
            return fields, list(CHECKS[fields["check"]](Tree(root)))

    def test_every_sample(self):
        samples = sorted((HERE / "samples").glob("*.txt"))
        self.assertGreater(len(samples), 10)
        for sample in samples:
            with self.subTest(sample.name):
                fields, findings = self.run_sample(sample)
                if fields["finds"] == "clean":
                    self.assertEqual(findings, [])
                else:
                    self.assertTrue(any(fields["finds"] in finding for finding in findings), findings)

    def test_every_check_has_a_failing_sample(self):
        proven = {fields["check"] for fields in (read_sample(p)[0] for p in (HERE / "samples").glob("*.txt"))
                  if fields["finds"] != "clean"}
        self.assertEqual(set(CHECKS) - proven, {"child_symbols", "commits"})  # the two below

    def test_child_symbols(self):
        code = "#include <string>\nextern int Length(const char* t);\nint Length(const char* t) { return int(std::string(t).size()); }\n"
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "runtime").mkdir()
            (root / "runtime/bad_child.cc").write_text(code)
            self.assertIn("was not built", "".join(check_child.check(Tree(root, root))))
            subprocess.run(["c++", "-c", "-O0", "-o", str(root / "bad_child.cc.o"), str(root / "runtime/bad_child.cc")], check=True)
            self.assertRegex("".join(check_child.check(Tree(root, root))), "needs _Z")

    def test_commit_subjects(self):
        self.assertEqual(list(check_text.check_subjects(["1234567 cgroups: kill before removing"])), [])
        self.assertEqual(len(list(check_text.check_subjects(["1234567 " + "x" * 73, "1234568 a full stop."]))), 2)


if __name__ == "__main__":
    sys.argv[1:] = []
    unittest.main()
