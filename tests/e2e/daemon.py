"""A hutchd of one test's own, in a private directory and cgroup, and the proof that it leaves nothing behind."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from client import ApiError, Client

HERE = pathlib.Path(__file__).resolve().parent
HUTCHD = os.environ.get("HUTCHD", "hutchd")
MAKE_IMAGE = HERE.parent / "support" / "make_busybox_image.sh"
ENDS = ("destroyed", "expired", "failed")  # states of a sandbox
PATIENCE = 60  # seconds; a virtual machine may be ten times slower than this one


def wait_until(condition, what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {patience} s: {what}")


def host_processes(*arguments):
    """Pids whose command line ends with these arguments."""
    wanted = b"\0".join(a.encode() for a in arguments) + b"\0"
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue
        if line.endswith(wanted):
            found.append(int(entry))
    return found


def cgroup_roots():
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split()[4] for line in lines if line.split(" - ")[1].split()[0] in ("cgroup", "cgroup2")}


class Daemon:
    serial = 0

    def __init__(self, *options, config=None):
        Daemon.serial += 1
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hutch-e2e-"))
        self.parent = f"/hutch-e2e-{os.getpid()}-{Daemon.serial}"
        self.socket = str(self.dir / "hutchd.sock")
        self.options = options
        self.config = self.dir / "hutchd.json"
        # A name without a registry is not looked for outside this machine.
        config = {"registries": {"default": ""}, **(config or {})}
        self.config.write_text(json.dumps(config))
        self.log = self.dir / "log"
        self.process = None

    def command(self):
        return [HUTCHD, "--socket", self.socket, "--state-dir", str(self.dir / "state"), "--run-dir", str(self.dir / "run"),
                "--config", str(self.config), "--cgroup-parent", self.parent, "--log-level", "debug", *self.options]

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self.answers, "hutchd answers")
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"hutchd ended with {self.process.returncode}:\n{self.log.read_text()}")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(self.socket)
            return True
        except OSError:
            return False

    def client(self, timeout=120):
        return Client(self.socket, timeout)

    def import_busybox(self):
        subprocess.run([str(MAKE_IMAGE), str(self.dir)], check=True, stdout=subprocess.DEVNULL)
        with contextlib.closing(self.client()) as client:
            return client.call("POST", "/v1/images/import", {"path": str(self.dir / "busybox"), "reference": "busybox:latest"})

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def remove_all(self):
        with contextlib.closing(self.client()) as client:
            for sandbox in client.call("GET", "/v1/sandboxes")["sandboxes"]:
                self.remove(client, sandbox)

    @staticmethod
    def remove(client, sandbox):
        if sandbox["state"] in ENDS:
            return
        try:
            client.delete(sandbox["id"])
        except ApiError as error:
            if error.code != "not_found":
                raise

    def groups(self):
        """Directories of sandboxes' cgroups, in every hierarchy."""
        found = []
        for root in cgroup_roots():
            top = pathlib.Path(root + self.parent, "sandboxes")
            found += [str(p) for p in top.iterdir() if p.is_dir()] if top.is_dir() else []
        return found

    def leftovers(self):
        left = self.groups()
        for root in cgroup_roots():
            for procs in pathlib.Path(root + self.parent).rglob("cgroup.procs"):
                left += [f"{procs}: {pid}" for pid in procs.read_text().split()]
        left += [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(self.dir) in line]
        run = self.dir / "run" / "sandboxes"
        left += [str(p) for p in run.iterdir()] if run.is_dir() else []
        return left

    def remove_groups(self):
        for root in cgroup_roots():
            top = pathlib.Path(root + self.parent)
            for directory in sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)) if top.is_dir() else []:
                directory.rmdir()
            if top.is_dir():
                top.rmdir()

    def close(self):
        """Removes every sandbox, stops, and fails when anything is left."""
        try:
            if self.process.poll() is None:
                self.remove_all()
                code = self.stop()
                if code != 0:
                    raise AssertionError(f"hutchd ended with {code}:\n{self.log.read_text()[-4000:]}")
        finally:
            if self.process.poll() is None:
                self.kill()
        wait_until(lambda: not self.leftovers(), f"nothing is left: {self.leftovers()}", 20)
        self.remove_groups()
        shutil.rmtree(self.dir)


class OwnDaemonCase(unittest.TestCase):
    """A daemon with the busybox image for each test, which may end it and start it again."""

    def setUp(self):
        self.daemon = Daemon().start()
        self.addCleanup(self.daemon.close)
        self.daemon.import_busybox()
        self.client = self.daemon.client()
        self.addCleanup(lambda: self.client.close())

    def restart(self):
        self.client.close()
        self.daemon.start()
        self.client = self.daemon.client()


class DaemonCase(unittest.TestCase):
    """One daemon with the busybox image for all tests of a class; each test finds no sandbox and must leave none it did not mean to."""

    options = ()
    config = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.options, config=cls.config).start()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.import_busybox()

    def setUp(self):
        self.client = self.daemon.client()
        self.addCleanup(self.clean)

    def clean(self):
        if self.daemon.process.poll() is None:
            self.daemon.remove_all()
        self.client.close()

    def sandbox(self, **fields):
        return self.client.create(**fields)["id"]

    def refused(self, code, method, path, body=None):
        """The error object of a call that must fail with `code`."""
        with self.assertRaises(ApiError) as caught:
            self.client.call(method, path, body)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception.error
