"""What the tests of engines share: an OCI runtime under test, named by HUTCH_OCI, an image made here, and a directory that goes."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

APPLETS = "sh true sleep cat ls id echo stat touch head wc tail tty hostname grep mkdir".split()
# The default limits of engines are above what a process without CAP_SYS_RESOURCE may set.
ULIMITS = ("--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000")
PATIENCE = 60


def runtime_program():
    found = shutil.which(os.environ.get("HUTCH_OCI", ""))
    if not found:
        raise SystemExit("HUTCH_OCI names no OCI runtime")
    return os.path.realpath(found)


class Engine(unittest.TestCase):
    """Each class has an engine of its own, with all its state in `cls.work`."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="oci."))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.runtime = runtime_program()
        root = cls.work / "rootfs"
        for name in ("bin", "etc", "tmp", "yard"):
            (root / name).mkdir(parents=True)
        shutil.copy("/usr/bin/busybox", root / "bin/busybox")
        for name in APPLETS:
            (root / "bin" / name).symlink_to("busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/yard:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
        cls.tar = cls.work / "rootfs.tar"
        subprocess.run(["tar", "-C", root, "-cf", cls.tar, "."], check=True)
        before = cls.host_mounts()
        cls.addClassCleanup(lambda: cls.assert_same(before, cls.host_mounts()))

    @staticmethod
    def host_mounts():
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            return sorted(line.split()[4] for line in file)

    @staticmethod
    def assert_same(before, after):
        if before != after:
            raise AssertionError(f"mounts are left: {sorted(set(after) - set(before))}")

    @classmethod
    def call(cls, *words, check=True, timeout=PATIENCE, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("cwd", cls.work)  # conmon leaves files where it is
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=timeout, **more)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    @classmethod
    def make_oci_archive(cls):
        """The image as an OCI archive, for engines that import nothing else."""
        layout = cls.work / "layout"
        cls.call("umoci", "init", "--layout", layout)
        cls.call("umoci", "new", "--image", f"{layout}:1")
        cls.call("umoci", "insert", "--image", f"{layout}:1", cls.work / "rootfs", "/")
        cls.call("umoci", "config", "--image", f"{layout}:1", "--config.env", "PATH=/bin", "--config.cmd", "/bin/sh")
        archive = cls.work / "image.tar"
        cls.call("skopeo", "copy", f"oci:{layout}:1", f"oci-archive:{archive}:local.test/busybox:1")
        return archive
