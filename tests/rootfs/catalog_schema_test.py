#!/usr/bin/env python3
"""docs/catalog.schema.json against what is built in, and against samples that hutchd's own parser judges in the same way (catalog_test.cc)."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import schema  # noqa: E402

SCHEMA = json.loads((ROOT / "docs" / "catalog.schema.json").read_text())


def faults(entry):
    return list(schema.check(entry, SCHEMA, SCHEMA, "entry"))


class CatalogSchema(unittest.TestCase):
    def test_every_entry_that_is_built_in(self):
        paths = sorted((ROOT / "rootfs" / "catalog").glob("*.json"))
        self.assertEqual([path.stem for path in paths], ["base", "data-science", "node", "python", "r", "skills"])
        for path in paths:
            entry = json.loads(path.read_text())
            self.assertEqual(faults(entry), [], path)
            self.assertEqual(entry["packages"], sorted(set(entry["packages"])), f"{path}: sorted, each once")

    def test_samples(self):
        samples = json.loads((ROOT / "tests" / "rootfs" / "catalog_samples.json").read_text())
        self.assertGreater(len(samples), 20)
        for sample in samples:
            self.assertEqual(not faults(sample["entry"]), sample.get("good", False), sample["why"])


if __name__ == "__main__":
    unittest.main()
