"""What all cases share: a bundle, a state directory, and the proof that nothing is left of a container."""
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import bundle as bundles
import known
import runtime as runtimes

_numbers = itertools.count(1)


def mounts_below(directory):
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(f"{directory}/")]


class Case(unittest.TestCase):
    maxDiff = None
    times = None  # a list: (seconds, case)

    def run(self, result=None):
        self.difference = known.difference(self.id())
        if self.difference and not self.difference.sometimes:
            self.__unittest_expecting_failure__ = True
        began = time.monotonic()
        try:
            return super().run(result)
        finally:
            if self.times is not None:
                self.times.append((time.monotonic() - began, self.id()))

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="conformance.")).resolve()
        self.work.chmod(0o755)
        self.runtime = runtimes.Runtime(self.work / "state")
        self.bundle = bundles.Bundle(self.work / "bundle")
        self.output_file = self.work / "output"
        self.names = []
        self.addCleanup(self._clean)

    def _callTestMethod(self, method):
        try:
            self._call_and_look(method)
        except AssertionError:
            if not (self.difference and self.difference.sometimes):
                raise
            print(f"this time: {self.id()}: {self.difference.reason}")

    def _call_and_look(self, method):
        super()._callTestMethod(method)
        self._end_containers()
        self.assertEqual(mounts_below(self.work), [], "mounts of the container are left in the host's namespace")
        self.assertEqual(self._groups(), [], "cgroups are left")

    def _end_containers(self):
        for name in self.names:
            try:
                self.runtime.call("delete", "--force", name, check=False)
            except subprocess.TimeoutExpired:
                pass  # what is left is looked for next

    def _groups(self):
        if not self.names:
            return []
        directories = [pathlib.Path(path) for path, _, _ in os.walk(runtimes.CGROUPS)]
        return [path for path in directories if any(name in path.name for name in self.names)]

    def _clean(self):
        self._end_containers()
        for path in reversed(mounts_below(self.work)):
            subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
        self._remove_groups()
        shutil.rmtree(self.work, ignore_errors=True)

    def _remove_groups(self):
        """Of containers that the runtime does not know, or hung over, with all their processes."""
        for path in reversed(self._groups()):
            try:
                for pid in (path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                runtimes.wait_for(lambda at=path: not (at / "cgroup.procs").read_text(), "the end of processes", 2)
                path.rmdir()
            except (OSError, AssertionError):
                pass

    # Names and files.
    def name(self):
        self.names.append(f"conformance-{os.getpid()}-{next(_numbers)}")
        return self.names[-1]

    def output(self):
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    # From a config to the end of the program.
    def run_to_end(self, config, *options, check=True, **more):
        """`run` in the foreground; the result of the call. A plain string is a script for the shell."""
        name = more.pop("name", None) or self.name()
        if isinstance(config, str):
            config = bundles.shell_config(config)
        self.bundle.write(config)
        return self.runtime.call("run", "--bundle", self.bundle.path, *options, name, check=check, **more)

    def said(self, config, *options, **more):
        return self.run_to_end(config, *options, **more).stdout.strip()

    def refused(self, config, *words, **more):
        """Creating fails with exit code 1 and a message, and leaves nothing."""
        done = self.run_to_end(config, check=False, **more)
        self.assertEqual(done.returncode, 1, f"not refused: {done.stdout}{done.stderr}")
        self.assertIsNone(self.runtime.status(self.names[-1]), "a failed create leaves a container")
        message = done.stdout + done.stderr
        self.assertTrue(message.strip(), "refused without a message")
        for word in words:
            self.assertRegex(message, f"(?i){word}")
        return message

    # Step by step.
    def create(self, config, *options, **more):
        name = more.pop("name", None) or self.name()
        self.bundle.write(config)
        self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, *options, name, **more)
        return name

    def start(self, config, *options, **more):
        name = self.create(config, *options, **more)
        self.runtime.call("start", name)
        return name

    def sleeper(self, change=None):
        """A running container whose init waits, and ends at a SIGTERM."""
        config = bundles.shell_config("trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done")
        if change:
            change(config)
        name = self.start(config)
        runtimes.wait_for(lambda: "up" in self.output(), "the container's program")
        return name

    def pid(self, name):
        return self.runtime.state(name)["pid"]

    def stop(self, name):
        self.runtime.call("kill", name, "KILL")
        self.runtime.wait_status(name, "stopped")

    def exec(self, name, script, *options, check=True, **more):
        return self.runtime.call("exec", *options, name, "sh", "-c", script, check=check, **more)
