"""In the guest of tests/uml/power-cut: looks at what the last life of this host left, says so, and works until the end.

    power_cut_inside.py TREE OUT SEED WRAP

OUT/ledger, on the outer host, has a line before each call and one after its answer. OUT/verdict: {"found": counts, "wrong": lines}."""
import hashlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from client import ApiError, Client  # noqa: E402  (the path above comes first)
from images import Layout, Tar  # noqa: E402

MAYBE = "maybe"  # asked for, and not answered before the cut
NAMES = 6        # of each kind
BYTES = 300_000  # of each image's file


def content(text):
    """Bytes that follow from a text, and do not compress."""
    return b"".join(hashlib.sha256(f"{text} {i}".encode()).digest() for i in range(BYTES // 32))


class Ledger:
    def __init__(self, path):
        self.path, self.known = path, {}  # (kind, name): (state, value)
        for line in path.read_text().splitlines() if path.exists() else []:
            kind, name, state, value = json.loads(line)
            before = self.known.get((kind, name), ("gone", None))
            if state == MAYBE:  # either what was, or what was asked for
                self.known[kind, name] = (MAYBE, [before[1], value] if before[0] != MAYBE else before[1] + [value])
            else:
                self.known[kind, name] = (state, value)

    def write(self, kind, name, state, value):
        with open(self.path, "a", encoding="utf-8") as out:
            out.write(json.dumps([kind, name, state, value]) + "\n")
            out.flush()
            os.fsync(out.fileno())

    def of(self, kind):
        return {name: told for (of, name), told in sorted(self.known.items()) if of == kind}


class Images:
    """The value is the text that an image's file follows from."""
    kind, route = "image", "/v1/images/import"

    def __init__(self, client, work):
        self.client, self.work = client, work

    def make(self, name, value):
        layout = Layout(self.work / f"image-{time.monotonic_ns()}")
        busybox = pathlib.Path("/bin/busybox").read_bytes()
        tar = Tar().file("bin/busybox", busybox, mode=0o755).symlink("bin/cat", "busybox").file("content", content(value))
        layout.add(tar.bytes(), "gzip").finish()
        self.client.call("POST", "/v1/images/import", {"path": str(layout.directory), "reference": f"{name}:latest"})

    def remove(self, name):
        self.client.call("DELETE", f"/v1/images/{name}:latest")

    def find(self, name):
        """Its value as far as a user can tell, or None; every blob of the image fits its digest."""
        try:
            self.client.call("GET", f"/v1/images/{name}:latest")
        except ApiError as error:
            if error.code == "not_found":
                return None
            raise
        status, _, archive = self.client.raw("GET", f"/v1/images/{name}:latest/archive")
        if status != 200:
            raise AssertionError(f"image {name} cannot be saved: {archive[:500]}")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                parts = member.name.split("/")
                if parts[:2] == ["blobs", "sha256"] and member.isfile():
                    if hashlib.sha256(tar.extractfile(member).read()).hexdigest() != parts[2]:
                        raise AssertionError(f"image {name}: blob {parts[2]} is damaged")
        sandbox = self.client.create(image=f"{name}:latest")["id"]
        try:
            got = self.client.exec(sandbox, ["/bin/busybox", "sha256sum", "/content"])["stdout"].split()[0]
        finally:
            self.client.delete(sandbox)
        return got

    @staticmethod
    def told(value):
        return value if value is None else hashlib.sha256(content(value)).hexdigest()


class Networks:
    kind, route = "network", "/v1/networks"

    def __init__(self, client, _):
        self.client = client

    def make(self, name, _):
        self.client.call("POST", "/v1/networks", {"name": name})

    def remove(self, name):
        self.client.call("DELETE", f"/v1/networks/{name}")

    def find(self, name):
        return "there" if name in {row["name"] for row in self.client.call("GET", "/v1/networks")["networks"]} else None

    @staticmethod
    def told(value):
        return value and "there"


KINDS = (Images, Networks)


class Host:
    def __init__(self, tree, out, wrap):
        self.base = pathlib.Path("/tmp/power")
        self.base.mkdir(exist_ok=True)
        self.work = pathlib.Path("/dev/shm/work")
        self.work.mkdir(exist_ok=True)
        self.tree, self.wrap, self.ledger = tree, wrap, Ledger(out / "ledger")
        self.config = self.work / "hutchd.json"
        self.config.write_text(json.dumps({"registries": {"default": ""}}))
        self.socket = "/run/hutchd.sock"

    def start(self):
        subprocess.Popen(  # ends with the host
            [*self.wrap, self.tree / "bin/hutchd", "--socket", self.socket, "--state-dir", self.base / "state", "--run-dir", "/run/hutch-power",
             "--config", self.config, "--cgroup-parent", "/hutch-power"], stdin=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                client = Client(self.socket)
                client.call("GET", "/v1/health")
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise AssertionError("hutchd does not answer")
        self.routes = set(client.call("GET", "/v1/openapi.json")["paths"])
        self.kinds = [kind(client, self.work) for kind in KINDS if kind.route in self.routes]

    def half_made(self):
        """Names that only exist while something is being made."""
        return [str(path) for path in (self.base / "state").rglob("*")
                if "layers" not in path.parts and path.name.startswith((".new", ".tmp", ".old")) or path.name.endswith(".new")]

    def look(self):
        wrong, found = [], {}
        for kind in self.kinds:
            for name, (state, value) in self.ledger.of(kind.kind).items():
                allowed = [kind.told(v) for v in value] if state == MAYBE else [kind.told(value)]
                got = kind.find(name)
                found[kind.kind] = found.get(kind.kind, 0) + (got is not None)
                if got not in allowed:
                    wrong.append(f"{kind.kind} {name} is {got}, not one of {allowed} ({state})")
                # From here on it is known.
                known = None if got is None else next((v for v in (value if state == MAYBE else [value]) if kind.told(v) == got), None)
                self.ledger.known[kind.kind, name] = ("there" if got else "gone", known)
                self.ledger.write(kind.kind, name, "there" if got else "gone", known)
        wrong += [f"half made: {path}" for path in self.half_made()]
        return {"found": found, "wrong": wrong}

    def work_on(self, dice):
        while True:
            kind = dice.choice(self.kinds)
            name = f"{kind.kind}{dice.randrange(NAMES)}"
            state, _ = self.ledger.known.get((kind.kind, name), ("gone", None))
            value = None if state == "there" else f"{name} {dice.getrandbits(64)}"
            self.ledger.write(kind.kind, name, MAYBE, value)
            if value is None:
                kind.remove(name)
            else:
                kind.make(name, value)
            told = ("gone" if value is None else "there", value)
            self.ledger.known[kind.kind, name] = told
            self.ledger.write(kind.kind, name, *told)


def main():
    tree, out, seed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    host = Host(tree, out, sys.argv[4].split())
    host.start()
    (out / "verdict.new").write_text(json.dumps(host.look()))
    os.rename(out / "verdict.new", out / "verdict")
    (out / "working").write_text("")
    host.work_on(random.Random(seed))


if __name__ == "__main__":
    main()
