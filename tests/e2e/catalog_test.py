"""The catalog through the socket and the command line: what is listed, an operator's own entries, what is refused. Building needs a package
mirror: tools/catalog-check does it."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from cli import CliCase
from client import ApiError

GOOD = {"description": "jq alone", "suite": "bookworm", "packages": ["jq"]}


class Catalog(CliCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="hutch-catalog-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.config = {"catalog_dir": str(cls.directory)}
        super().setUpClass()

    def setUp(self):
        super().setUp()
        for path in self.directory.iterdir():
            path.unlink()

    def write(self, name, entry, mode=0o644):
        path = self.directory / name
        path.write_text(entry if isinstance(entry, str) else json.dumps(entry))
        path.chmod(mode)
        return str(path)

    def catalog(self):
        return self.client.call("GET", "/v1/catalog")

    def test_what_is_built_in_is_listed(self):
        entries = {entry["name"]: entry for entry in self.catalog()["entries"]}
        self.assertEqual(sorted(entries), ["base", "data-science", "node", "python", "r", "skills"])
        self.assertEqual((entries["python"]["path"], entries["python"]["image"]), (None, None))
        self.assertIn("python3", entries["python"]["packages"])

    def test_an_operators_entry_comes_and_goes_without_a_restart(self):
        path = self.write("mine.json", GOOD)
        mine = self.catalog()["entries"][-1]
        self.assertEqual((mine["name"], mine["path"], mine["packages"], mine["components"]), ("mine", path, ["jq"], ["main"]))
        self.assertEqual(self.client.call("GET", "/v1/info")["catalog"][-1], "mine")
        os.unlink(path)
        self.assertNotIn("mine", self.client.call("GET", "/v1/info")["catalog"])
        self.refused("not_found", "POST", "/v1/images/build", {"name": "mine"})

    def test_the_image_of_an_entry_is_named(self):
        self.write("mine.json", GOOD)
        image = self.client.call("POST", "/v1/images/import", {"path": str(self.daemon.dir / "busybox"), "reference": "mine:latest"})["id"]
        self.assertEqual(self.catalog()["entries"][-1]["image"], image)
        self.client.call("DELETE", "/v1/images/mine:latest")
        self.assertIsNone(self.catalog()["entries"][-1]["image"])

    def test_bad_files_are_told_and_never_built(self):
        self.write("python.json", GOOD)
        self.write("loose.json", GOOD, 0o666)
        self.write("option.json", {**GOOD, "packages": ["--customize-hook=touch /tmp/x"]})
        self.write("broken.json", "{")
        catalog = self.catalog()
        self.assertEqual(len(catalog["entries"]), 6)
        codes = {os.path.basename(refused["path"]): refused["error"]["code"] for refused in catalog["refused"]}
        self.assertEqual(codes, {"python.json": "exists", "loose.json": "forbidden", "option.json": "invalid_argument", "broken.json": "invalid_argument"})
        for name, code in (("loose", "forbidden"), ("option", "invalid_argument"), ("broken", "invalid_argument"), ("../mine", "not_found")):
            self.refused(code, "POST", "/v1/images/build", {"name": name})

    # The suite is in no source of the host's, so nothing is fetched.
    def test_a_suite_the_host_does_not_have_is_refused(self):
        self.write("odd.json", {**GOOD, "suite": "no-such-suite"})
        with self.assertRaises(ApiError) as caught:
            self.client.call("POST", "/v1/images/build", {"name": "odd"})
        self.assertEqual(caught.exception.code, "unavailable")
        self.assertIn("no-such-suite", caught.exception.error["message"])

    def test_the_command_line_lists_it(self):
        self.write("mine.json", GOOD)
        self.write("broken.json", "{")
        done = self.hutch("image", "catalog")
        self.assertRegex(done.stdout.decode(), r"(?m)^python +- +6 +built in +Python 3")
        self.assertRegex(done.stdout.decode(), r"(?m)^mine +- +1 +/\S+/mine.json +jq alone")
        self.assertIn(b"broken.json", done.stderr)
        self.assertEqual(self.text("image", "catalog", "-q").split()[-1], "mine")
        self.assertEqual(len(json.loads(self.text("image", "catalog", "--json"))["entries"]), 7)
        offered = subprocess.run([os.environ.get("HUTCH", "hutch"), "__complete", "image", "build", "m"], capture_output=True, env=self.environment(), check=True)
        self.assertEqual(offered.stdout, b"mine\n")


if __name__ == "__main__":
    unittest.main()
