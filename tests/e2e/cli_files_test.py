#!/usr/bin/env python3
"""cp and files of the command line against the real daemon."""
import os
import pathlib
import resource
import subprocess
import tarfile
import tempfile
import unittest

from cli import HUTCH, PATIENCE, CliCase


class Files(CliCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.here = pathlib.Path(directory.name)
        self.box = self.sandbox()

    def cp(self, source, destination, **more):
        return self.text("cp", str(source), str(destination), **more)

    def test_a_file_goes_in_and_out_with_its_mode(self):
        source = self.here / "a [b]"
        source.write_bytes(os.urandom(3_000_000))
        source.chmod(0o751)
        self.cp(source, f"{self.box}:/workspace")
        self.assertEqual(self.text("exec", self.box, "--", "stat", "-c", "%a %s", "/workspace/a [b]"), "751 3000000\n")
        self.cp(f"{self.box}:/workspace/a [b]", self.here / "back")
        self.assertTrue((self.here / "back").read_bytes() == source.read_bytes())
        self.assertEqual((self.here / "back").stat().st_mode & 0o777, 0o751)
        self.assertEqual(sorted(os.listdir(self.here)), ["a [b]", "back"])

    def test_a_tree_comes_back_as_it_went(self):
        tree = self.here / "tree"
        deep = tree / ("d" * 120) / "sub"
        deep.mkdir(parents=True)
        for n in range(300):
            (deep / f"f{n}").write_bytes(b"%d" % n * n)
        (tree / "link").symlink_to("/etc/passwd")
        (tree / "script").write_text("#!/bin/sh\n")
        (tree / "script").chmod(0o755)
        with open(tree / "sparse", "wb") as sparse:
            sparse.truncate(1 << 20)
            sparse.seek(3 << 20)
            sparse.write(b"end")
            sparse.truncate(5 << 20)
        self.cp(tree, f"{self.box}:/workspace/new")
        self.cp(f"{self.box}:/workspace/new", self.here / "out")
        done = subprocess.run(["diff", "-r", "--no-dereference", str(tree), str(self.here / "out")], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b""))
        self.assertEqual((self.here / "out" / "script").stat().st_mode & 0o777, 0o755)
        self.cp(tree, f"{self.box}:/workspace/new")
        self.assertEqual(self.text("exec", self.box, "--", "ls", "/workspace/new/tree").split(), ["d" * 120, "link", "script", "sparse"])

    def test_a_tar_goes_in_and_out(self):
        (self.here / "x").write_text("x")
        packed = subprocess.run(["tar", "c", "-C", str(self.here), "x"], capture_output=True, check=True).stdout
        self.cp("-", f"{self.box}:/workspace", stdin=packed)
        self.assertEqual(self.text("files", "cat", f"{self.box}:/workspace/x"), "x")
        with open(self.here / "out.tar", "wb") as out:
            subprocess.run([HUTCH, "cp", f"{self.box}:/workspace", "-"], stdout=out, env=self.environment(), timeout=PATIENCE, check=True)
        with tarfile.open(self.here / "out.tar") as archive:
            self.assertIn("x", archive.getnames())

    def test_what_is_large_goes_in_constant_memory(self):
        source = self.here / "large"
        with open(source, "wb") as large:
            large.truncate(400 << 20)
        bounded = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))}
        for words in ((str(source), f"{self.box}:/workspace/large"), (f"{self.box}:/workspace/large", str(self.here / "back"))):
            done = subprocess.run([HUTCH, "cp", *words], capture_output=True, env=self.environment(), timeout=4 * PATIENCE, check=False,
                                  **bounded)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual((self.here / "back").stat().st_size, 400 << 20)

    def test_what_fails_is_told_and_leaves_nothing(self):
        (self.here / "x").write_text("x")
        for source, destination in ((f"{self.box}:/absent", self.here / "y"), (self.here / "x", f"{self.box}:/workspace/no/"),
                                    (self.here / "x", f"{self.box}:/etc/x"), (self.here / "x", "absent:/x"),
                                    (f"{self.box}:/a", f"{self.box}:/b"), (self.here / "none", f"{self.box}:/workspace")):
            done = self.hutch("cp", str(source), str(destination))
            self.assertEqual(done.returncode, 1, (source, destination, done))
            self.assertTrue(done.stderr.startswith(b"hutch: "))
        self.assertEqual(os.listdir(self.here), ["x"])

    def test_files_are_listed_made_and_removed(self):
        self.text("files", "mkdir", "-p", f"{self.box}:/workspace/a/b")
        self.text("exec", self.box, "--", "sh", "-c", "echo hello > /workspace/a/f; ln -s f /workspace/a/l")
        self.assertRegex(self.text("files", "ls", f"{self.box}:/workspace/a"),
                         r"MODE +SIZE +MODIFIED +NAME\n0755 .* b/\n0644 +6 B +\S+ +f\n0777 .* l -> f\n")
        self.assertEqual(self.text("files", "cat", f"{self.box}:/workspace/a/f", f"{self.box}:/workspace/a/l"), "hello\nhello\n")
        self.assertEqual(self.hutch("files", "rm", f"{self.box}:/workspace/a").returncode, 1)
        self.text("files", "rm", "-r", f"{self.box}:/workspace/a")
        self.assertEqual(self.hutch("files", "ls", f"{self.box}:/workspace/a").returncode, 1)


if __name__ == "__main__":
    unittest.main()
