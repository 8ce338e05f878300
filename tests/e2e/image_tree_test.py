"""Images that buildah, podman, umoci and skopeo wrote, file by file: our merged tree beside the one that podman shows of the same image.

What differs is asserted, not left out: the documented drops of docs/images.md."""
import contextlib
import ctypes
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

from daemon import Daemon
from images import Layout, Tar, tree

libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MNT_DETACH = 1, 2
NS = 1_234_567_890_123_456_789
CAPABILITY = b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # cap_net_raw=ep
LARGE_OWNER = 200_000
NOBODY = 65534
DROPPED = {"device", "owner", "attribute", "empty attribute, by them"}


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr.decode()}")
    return done.stdout.decode().strip()


def write(path, data=b"", mode=0o644, owner=(0, 0)):
    path = os.fsencode(path)
    with open(path, "wb") as file:
        file.write(data)
    os.chown(path, *owner)
    os.chmod(path, mode)


def fill(root):
    """One of everything that a layer can hold."""
    root = pathlib.Path(root)
    for name in ("bin", "data/deep/er", "gone/below", "opaque/old", "swap-dir", "odd", "empty"):
        (root / name).mkdir(parents=True)
    write(root / "bin/tool", os.urandom(70_000), 0o755)
    write(root / "bin/suid", b"#!/bin/sh\n", 0o4755)
    write(root / "bin/sgid", b"#!/bin/sh\n", 0o2755, (0, 42))
    write(root / "bin/caps", b"\x7fELF", 0o755)
    os.setxattr(root / "bin/caps", "security.capability", CAPABILITY)
    os.link(root / "bin/tool", root / "bin/tool-2")
    os.link(root / "bin/tool", root / "data/deep/tool-3")
    os.symlink("tool", root / "bin/relative")
    os.symlink("/etc/passwd", root / "bin/absolute")
    os.symlink("nowhere/" * 30, root / "bin/dangling")
    os.link(root / "bin/relative", root / "bin/relative-2", follow_symlinks=False)
    write(root / "data/attributes", b"x")
    os.setxattr(root / "data/attributes", "user.note", b"kept \0 whole")
    os.setxattr(root / "data/attributes", "user.empty", b"")
    os.setxattr(root / "data", "user.of-a-directory", b"1")
    write(root / "data/holes")
    with open(root / "data/holes", "r+b") as file:
        file.seek(1 << 20)
        file.write(b"middle")
        file.truncate(5 << 20)
    write(root / "data/empty")
    write(root / "data/no-mode", b"secret", 0)
    write(root / "data/odd-owner", b"", 0o640, (12345, 54321))
    write(root / "data/large-owner", b"", 0o644, (LARGE_OWNER, LARGE_OWNER))
    os.mkdir(root / "data/sticky")
    os.chmod(root / "data/sticky", 0o1777)
    os.mkdir(root / "data/sgid")
    os.chmod(root / "data/sgid", 0o2750)
    os.mkfifo(root / "data/fifo", 0o600)
    os.mknod(root / "data/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(root / "data/loop", stat.S_IFBLK | 0o660, os.makedev(7, 0))
    write(os.fsencode(root) + "/odd/größe".encode(), b"utf-8")
    write(root / "odd" / ("n" * 255), b"long")
    deep = root / "odd" / "/".join(["d" * 120] * 6)
    deep.mkdir(parents=True)
    write(deep / "f", b"deep")
    os.symlink("t" * 300, root / "odd/long-link")
    os.link(deep / "f", root / "odd/to-deep")
    write(root / "odd/ space\nand line", b"")
    write(root / "swap-file", b"a file becomes a directory")
    write(root / "swap-dir/f", b"a directory becomes a file")
    write(root / "gone/below/f", b"")
    write(root / "gone-file", b"")
    write(root / "opaque/old/f", b"")
    write(root / "opaque/stays-away", b"")
    write(root / "changed", b"one")
    for number, (directory, names, files) in enumerate(sorted(os.walk(os.fsencode(root), topdown=False))):
        for name in sorted(files) + [b""]:
            path = os.path.join(directory, name) if name else directory
            os.utime(path, ns=(NS, NS + number * 1_000_000_007), follow_symlinks=False)
        del names


def change(root):
    """The second layer: removals, replacements both ways, an opaque directory, an old file touched."""
    root = pathlib.Path(root)
    shutil.rmtree(root / "gone")
    (root / "gone-file").unlink()
    shutil.rmtree(root / "opaque")
    (root / "opaque").mkdir(mode=0o751)
    write(root / "opaque/new", b"new")
    (root / "swap-file").unlink()
    (root / "swap-file").mkdir()
    write(root / "swap-file/f", b"")
    shutil.rmtree(root / "swap-dir")
    write(root / "swap-dir", b"now a file")
    write(root / "changed", b"two")
    os.chmod(root / "data/sticky", 0o1755)
    os.chown(root / "bin", 7, 8)
    os.utime(root / "opaque", ns=(NS, NS + 5))
    os.setxattr(root / "data", "user.second", b"2")


class ImageTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        cls.addClassCleanup(cls.daemon.close)
        cls.client = cls.daemon.client()
        cls.addClassCleanup(cls.client.close)

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.dir))
        self.addCleanup(shutil.rmtree, self.work)
        self.started = time.time_ns() - 10**9
        self.places = ["--root", self.work / "graph", "--runroot", self.work / "run", "--storage-driver", "overlay"]

    # --- the two trees

    @contextlib.contextmanager
    def mounted(self, image):
        """Our layers as a sandbox gets them, without its id map."""
        layers = self.daemon.dir / "state/layers"
        lower = [str(layers / layer["diff_id"][7:] / "fs") for layer in reversed(image["layer_list"])]
        target = self.work / "merged"
        target.mkdir()
        (self.work / "bottom").mkdir(exist_ok=True)  # overlayfs wants two
        options = "lowerdir=" + ":".join(lower + [str(self.work / "bottom")])
        if libc.mount(b"overlay", os.fsencode(target), b"overlay", MS_RDONLY, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), options)
        try:
            yield target
        finally:
            libc.umount2(os.fsencode(target), MNT_DETACH)
            target.rmdir()

    def ours(self, source, name="tree:latest"):
        self.client.call("POST", "/v1/images/import", {"path": str(source), "reference": name})
        image = self.client.call("GET", f"/v1/images/{name}")
        self.addCleanup(self.client.call, "DELETE", f"/v1/images/{name}")
        with self.mounted(image) as merged:
            return tree(merged)

    def podmans(self, source, loaded=None):
        """What podman unpacks of the same file, by its own storage."""
        name = loaded or run("podman", *self.places, "pull", "-q", source).splitlines()[-1]
        where = run("podman", *self.places, "image", "mount", name)
        try:
            return tree(where, ("user.", "security."))
        finally:
            run("podman", *self.places, "image", "umount", "--force", name)

    def compare(self, ours, theirs, unmentioned=()):
        """Equal but for what docs/images.md says is dropped; which must be there to be dropped. `unmentioned`: directories that the topmost
        layer with something in them does not list: root's, 0755 and as old as the unpacking in both."""
        for path in unmentioned:
            self.assertEqual((ours[path][1:4], theirs[path][1:4]), (("0o755", 0, 0),) * 2)
            self.assertGreater(min(ours[path][4], theirs[path][4]), self.started)
            theirs[path] = (*theirs[path][:4], ours[path][4], *theirs[path][5:])
        expected = {}
        dropped = set()
        for path, (kind, mode, uid, gid, mtime, content, attributes, first) in theirs.items():
            if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                dropped.add("device")
                continue
            if uid > 65535 or gid > 65535:
                dropped.add("owner")
                uid, gid = (NOBODY if owner > 65535 else owner for owner in (uid, gid))
            kept = tuple((key, value) for key, value in attributes if key.startswith("user."))
            if kept != attributes:
                dropped.add("attribute")
            expected[path] = (kind, mode, uid, gid, mtime, content, kept, first)
        self.assertEqual(sorted(ours), sorted(expected))
        for path, entry in expected.items():
            if path == b".":
                continue  # of the root nobody says anything here
            mine = list(ours[path])
            valued = tuple(attribute for attribute in mine[6] if attribute[1])
            if valued != mine[6] and entry[6] == valued:
                dropped.add("empty attribute, by them")
                mine[6] = valued
            self.assertEqual(tuple(mine), entry, path)
        return dropped

    # --- who writes them

    def buildah(self, image_format="oci"):
        """Two layers of buildah's, committed one on the other."""
        buildah = ["buildah", *self.places]
        for number, make in enumerate((fill, change)):
            box = run(*buildah, "from", "--name", f"box{number}", "scratch" if number == 0 else "localhost/layer0")
            make(run(*buildah, "mount", box))
            run(*buildah, "umount", box)
            if number == 1:
                run(*buildah, "config", "--user", "7:8", "--env", "A=b", "--label", "c=d", box)
            run(*buildah, "commit", "-q", "--format", image_format, box, f"localhost/layer{number}")
            run(*buildah, "rm", box)
        return "localhost/layer1"

    def test_buildah_oci(self):
        name = self.buildah()
        run("buildah", *self.places, "push", "-q", name, f"oci:{self.work}/layout:layer1")
        dropped = self.compare(self.ours(self.work / "layout"), self.podmans(None, name))
        self.assertEqual(dropped, DROPPED)

    def test_buildah_docker_archive(self):
        name = self.buildah("docker")
        run("buildah", *self.places, "push", "-q", name, f"docker-archive:{self.work}/image.tar:layer1:latest")
        dropped = self.compare(self.ours(self.work / "image.tar"), self.podmans(None, name))
        self.assertEqual(dropped, DROPPED)

    def test_podman_save(self):
        """What podman saves in its formats, and what it commits and imports."""
        name = self.buildah()
        theirs = self.podmans(None, name)
        for image_format, suffix in (("oci-archive", ""), ("docker-archive", ""), ("oci-dir", "")):
            with self.subTest(format=image_format):
                target = self.work / image_format
                run("podman", *self.places, "save", "-q", "--format", image_format, "-o", target, name)
                self.assertEqual(self.compare(self.ours(target, f"{image_format}:1"), theirs), DROPPED)
        flat = self.work / "flat.tar"
        where = run("podman", *self.places, "image", "mount", name)
        run("tar", "--xattrs", "--numeric-owner", "--format=posix", "-C", where, "-cf", flat, ".")
        run("podman", *self.places, "image", "umount", "--force", name)
        run("podman", *self.places, "import", "-q", flat, "localhost/flat")
        run("podman", *self.places, "save", "-q", "--format", "docker-archive", "-o", self.work / "saved.tar", "localhost/flat")
        self.compare(self.ours(self.work / "saved.tar", "flat:1"), self.podmans(None, "localhost/flat"))

    def test_skopeo_compressions(self):
        """One image, repacked by skopeo every way it can."""
        name = self.buildah()
        theirs = self.podmans(None, name)
        run("buildah", *self.places, "push", "-q", name, f"oci:{self.work}/layout:layer1")
        skopeo = ["skopeo", "--insecure-policy", "copy", "-q"]
        source = f"oci:{self.work}/layout:layer1"
        for number, (options, kind) in enumerate(((("--dest-compress-format", "zstd"), "oci:{}:l"), (("--dest-compress-format", "gzip"), "oci:{}:l"),
                                                  (("--dest-decompress",), "oci:{}:l"), ((), "oci-archive:{}:l"), ((), "docker-archive:{}:l:1"))):
            with self.subTest(options=options, kind=kind):
                target = self.work / f"copy{number}"
                if "--dest-decompress" in options:
                    run(*skopeo, source, f"dir:{self.work}/dir", *options)
                    run(*skopeo, f"dir:{self.work}/dir", kind.format(target))
                else:
                    run(*skopeo, *options, source, kind.format(target))
                self.assertEqual(self.compare(self.ours(target, f"copy{number}:1"), theirs), DROPPED)

    def test_umoci(self):
        """Layers by umoci's own diff; podman unpacks the layout, too."""
        layout, bundle = self.work / "layout", self.work / "bundle"
        run("umoci", "init", "--layout", layout)
        run("umoci", "new", "--image", f"{layout}:v1")
        for make in (fill, change):
            run("umoci", "unpack", "--image", f"{layout}:v1", bundle)
            make(bundle / "rootfs")
            run("umoci", "repack", "--image", f"{layout}:v1", bundle)
            shutil.rmtree(bundle)
        dropped = self.compare(self.ours(layout), self.podmans(f"oci:{layout}:v1"))
        self.assertEqual(dropped, {"device", "owner", "attribute"})

    def test_tarfile(self):
        """Explicit whiteouts in each order, a repeated layer, and directories that a layer does not mention."""
        lower = Tar().directory("d", mode=0o751, uid=5).file("d/a", b"1").file("d/b", b"2").directory("e/f").file("e/f/g", b"3")
        middle = Tar().file("d/.wh.a").file("e/.wh..wh..opq").file("e/new", b"4").file("top", b"5")
        upper = Tar().file("d/a", b"back").file(".wh.top").directory("e/f").hardlink("linked", "d/a")
        layers = [part.bytes() for part in (lower, middle, upper)]
        layout = Layout(self.work / "layout")
        for data, how in zip([*layers, layers[1]], ("none", "gzip", "zstd", "zstd")):
            layout.add(data, how)
        path = layout.finish(name="t:1")
        self.assertEqual(self.compare(self.ours(path), self.podmans(f"oci:{path}:t:1"), (b"d", b"e")), set())


if __name__ == "__main__":
    unittest.main()
