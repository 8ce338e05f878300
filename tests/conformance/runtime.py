"""The runtime under test, named by HUTCH_CONFORMANCE_RUNTIME, and the host it runs on."""
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

PATIENCE = 10  # seconds
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def is_unified():
    """Pure cgroup v2, not a hybrid of both."""
    return (CGROUPS / "cgroup.controllers").exists()


def wait_for(condition, what, seconds=PATIENCE):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {seconds} s for {what}")


def cgroup_directories(pid):
    """Where the process is, by controller; "" is the v2 tree."""
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = CGROUPS if is_unified() else CGROUPS / "unified"
            found[""] = root / path.lstrip("/")
        else:
            for name in controllers.split(","):
                found[name] = CGROUPS / name.removeprefix("name=") / path.lstrip("/")
    return found


class Failed(AssertionError):
    def __init__(self, command, done):
        super().__init__(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        self.done = done


class Runtime:
    """Calls of one runtime with a state directory of its own."""

    def __init__(self, state, program=None):
        self.program = program or program_path()
        self.state_directory = pathlib.Path(state)

    def words(self, *arguments):
        return [self.program, "--root", str(self.state_directory), *map(str, arguments)]

    def call(self, *arguments, check=True, timeout=PATIENCE, **options):
        command = self.words(*arguments)
        options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
        if options["stdin"] is None:
            del options["stdin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, **options)
        if check and done.returncode != 0:
            raise Failed(command, done)
        return done

    def call_to_file(self, output, *arguments, check=True, timeout=PATIENCE, **options):
        """For create and run --detach: the container inherits the streams and would keep a pipe open."""
        with open(output, "ab") as file:
            done = subprocess.run(self.words(*arguments), stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False,
                                  timeout=timeout, **options)
        if check and done.returncode != 0:
            done.stdout, done.stderr = "", pathlib.Path(output).read_text(errors="replace")
            raise Failed(self.words(*arguments), done)
        return done

    def state(self, name):
        return json.loads(self.call("state", name).stdout)

    def status(self, name):
        """None when the container does not exist."""
        done = self.call("state", name, check=False)
        return json.loads(done.stdout)["status"] if done.returncode == 0 else None

    def wait_status(self, name, status):
        return wait_for(lambda: self.status(name) == status, f"{name} {status}")


@functools.lru_cache(maxsize=None)
def program_path():
    name = os.environ.get("HUTCH_CONFORMANCE_RUNTIME")
    found = shutil.which(name) if name else None
    if not found:
        raise SystemExit(f"HUTCH_CONFORMANCE_RUNTIME names no runtime: {name!r}")
    return os.path.realpath(found)


@functools.lru_cache(maxsize=None)
def identity():
    """("runc", (1, 1, 5)): what --version says."""
    text = subprocess.run([program_path(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^(\S+) version (\d+(?:\.\d+)*)", text)
    if not found:
        raise SystemExit(f"{program_path()} --version says {text!r}")
    return found[1], tuple(map(int, found[2].split(".")))


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(process):
    """A Popen of ours, however it is."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
