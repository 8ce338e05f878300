#!/usr/bin/env python3
"""Proves that tests/report.py calls a run red when it is: a failure, an unlisted skip, nothing run, no file."""
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import report  # noqa: E402  (the path above comes first)

PASSED = '<testcase name="A.Works" status="run"/>'
FAILED = '<testcase name="A.Breaks" status="fail"><failure>boom</failure></testcase>'
SKIPPED = '<testcase name="A.Waits" status="notrun"><skipped/><system-out>a_test.cc:3: Skipped\nno PSI here</system-out></testcase>'
DISABLED = '<testcase name="A.Off" status="disabled"/>'


class Report(unittest.TestCase):
    def judge(self, body, allowed=()):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "unit.xml"
            path.write_text(f"<testsuite>{body}</testsuite>")
            out = io.StringIO()
            return report.judge(list(allowed), [path], out), out.getvalue()

    def test_passed(self):
        self.assertEqual(self.judge(PASSED)[0], {"passed": 1, "failed": 0, "skipped": 0})

    def test_failed_shows_its_output(self):
        counts, text = self.judge(PASSED + FAILED)
        self.assertEqual(counts["failed"], 1)
        self.assertIn("boom", text)

    def test_what_did_not_fail_is_no_part_of_the_output_shown(self):
        out = "test_z (m.T.test_z) ... FAIL\n" + "test_a (m.T.test_a) ... ok\n" * 100 + "FAIL: test_z\n"
        text = self.judge(f'<testcase name="e2e.x" status="fail"><system-out>{out}</system-out></testcase>')[1]
        self.assertIn("test_z (m.T.test_z) ... FAIL", text)
        self.assertNotIn("test_a", text)

    def test_an_unlisted_skip_is_red(self):
        self.assertEqual(self.judge(SKIPPED)[0], {"passed": 0, "failed": 1, "skipped": 0})
        self.assertEqual(self.judge(DISABLED)[0]["failed"], 1)

    def test_a_listed_skip_is_counted_with_its_reason(self):
        counts, text = self.judge(SKIPPED, [("unit/A.*", "needs PSI")])
        self.assertEqual(counts, {"passed": 0, "failed": 0, "skipped": 1})
        self.assertIn("no PSI here", text)

    def test_a_skip_listed_for_another_stage_is_red(self):
        self.assertEqual(self.judge(SKIPPED, [("uml-kernel/A.*", "needs PSI")])[0]["failed"], 1)

    def test_a_skip_inside_a_python_program_is_seen(self):
        out = "test_a (m.T.test_a) ... ok\ntest_psi (m.T.test_psi)\nOf pressure. ... skipped 'no PSI here'\nOK (skipped=1)"
        body = f'<testcase name="e2e.x" status="run"><system-out>{out}</system-out></testcase>'
        self.assertEqual(self.judge(body)[0], {"passed": 1, "failed": 1, "skipped": 0})
        counts, text = self.judge(body, [("unit/e2e.x/test_psi", "needs PSI")])
        self.assertEqual(counts, {"passed": 1, "failed": 0, "skipped": 1})
        self.assertIn("no PSI here", text)

    def test_no_test_and_no_file_are_red(self):
        self.assertEqual(self.judge("")[0]["failed"], 1)
        self.assertEqual(report.judge([], ["absent.xml"], io.StringIO())["failed"], 1)


if __name__ == "__main__":
    unittest.main()
