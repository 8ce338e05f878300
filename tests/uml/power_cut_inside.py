"""In the guest of tests/uml/power-cut: looks at what the last life of this host left, says so, and works until the end.

    power_cut_inside.py TREE OUT SEED WRAP KINDS

OUT/ledger, on the outer host, has a line before each call and one after its answer. OUT/verdict: {"found": counts, "wrong": lines}."""
import base64
import datetime
import functools
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.parse

import ext4

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from client import ApiError, Client  # noqa: E402  (the path above comes first)
from images import Layout, Tar  # noqa: E402

MAYBE = "maybe"  # asked for, and not answered before the cut
NAMES = 6        # of each kind
BYTES = 300_000  # of each file
MIB = 1 << 20
QUIET = 4        # seconds
BEGUN = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")[:19]  # as the API has it; this life
LIMITS = {"memory_bytes": 32 * MIB, "disk_bytes": 16 * MIB, "cpus": 0.5}
TOOLS = "tools:latest"  # the image of sandboxes that write; made anew in every life, and kept


def content(text):
    """Bytes that follow from a text, and do not compress."""
    return b"".join(hashlib.sha256(f"{text} {i}".encode()).digest() for i in range(BYTES // 32))


@functools.lru_cache(maxsize=1024)
def digest(text):
    return hashlib.sha256(content(text)).hexdigest()


def with_file(value, text):
    """A value with one file more. Files are named by their digests: one of which only a part is there is none."""
    return {**value, "files": sorted({*value["files"], digest(text)}), "text": text}


def import_image(client, work, name, files):
    layout = Layout(work / f"image-{time.monotonic_ns()}")
    tar = Tar().file("bin/busybox", pathlib.Path("/bin/busybox").read_bytes(), mode=0o755)
    for tool in ("cat", "sh", "dd", "sync", "sha256sum"):
        tar.symlink(f"bin/{tool}", "busybox")
    for path, data in files.items():
        tar.file(path, data)
    layout.add(tar.bytes(), "gzip").finish()
    client.call("POST", "/v1/images/import", {"path": str(layout.directory), "reference": name})
    shutil.rmtree(layout.directory)


class Ledger:
    def __init__(self, path):
        self.path, self.known = path, {}  # (kind, name): (state, value)
        self.cut_at = path.stat().st_mtime if path.exists() else 0  # about
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

    def rest(self, seconds):
        """Nothing is asked for; the time of the cut is known all the same."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.path.touch()
            time.sleep(0.2)

    def of(self, kind):
        return {name: told for (of, name), told in sorted(self.known.items()) if of == kind}


class Kind:
    """Of what outlives a host: the value of a name is None while there is none. What all kinds have alike is here."""
    def __init__(self, client, work):
        self.client, self.work = client, work

    def pick(self, dice):
        return f"{self.kind}{dice.randrange(NAMES)}"

    def plan(self, _name, before, text, _dice):
        """The value to be had next."""
        return text if before is None else None

    def change(self, name, _before, value):
        """Makes it so; returns the value with what is known of it only now."""
        if value is None:
            self.remove(name)
        else:
            self.make(name, value)
        return value

    def allowed(self, value, _cut_at):
        """What may be found of a value after a cut, and what the value then is."""
        return [(self.told(value), value)]


class Images(Kind):
    """The value is the text that an image's file follows from."""
    kind, route = "image", "/v1/images/import"

    def make(self, name, value):
        import_image(self.client, self.work, f"{name}:latest", {"content": content(value)})

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
        return value if value is None else digest(value)


class Networks(Kind):
    kind, route = "network", "/v1/networks"

    def make(self, name, _):
        self.client.call("POST", "/v1/networks", {"name": name})

    def remove(self, name):
        self.client.call("DELETE", f"/v1/networks/{name}")

    def find(self, name):
        return "there" if name in {row["name"] for row in self.client.call("GET", "/v1/networks")["networks"]} else None

    @staticmethod
    def told(value):
        return value and "there"


class Volumes(Kind):
    """The value is {"mib", "files": digests}; "text", "of": what the last file follows from, and what it was copied from."""
    kind, route = "volume", "/v1/volumes"
    SMALLEST, STEP, LARGEST, FILES = 16, 8, 40, 12

    def __init__(self, client, work):
        super().__init__(client, work)
        self.values, self.users = {}, {}  # by name, as this life knows them; users: a sandbox

    def plan(self, name, before, text, dice):
        self.values[name] = before
        roll = dice.random()
        if before is None:
            others = sorted(other for other, value in self.values.items() if value is not None)
            of = dice.choice(others) if others and roll < 0.4 else None
            return {**self.values[of], "of": of} if of else {"mib": self.SMALLEST, "files": []}
        if roll < 0.15 or len(before["files"]) >= self.FILES:
            return None
        known = {key: before[key] for key in ("mib", "files")}
        if roll < 0.35 and known["mib"] < self.LARGEST:
            return {**known, "mib": known["mib"] + self.STEP}
        return {**with_file(known, text), "by": "archive" if roll < 0.65 else "sandbox"}

    def change(self, name, before, value):
        if value is None:
            self.end_user(name)
            self.client.call("DELETE", f"/v1/volumes/{name}")
        elif before is None and "of" in value:
            self.client.call("POST", f"/v1/volumes/{value['of']}/copy", {"to": name})
        elif before is None:
            self.client.call("POST", "/v1/volumes", {"name": name, "size_bytes": value["mib"] * MIB})
        elif value["mib"] != before["mib"]:
            self.grow(name, value)
        elif value["by"] == "archive":
            self.upload(name, value)
        else:
            self.write(name, value)
        self.values[name] = value
        return value

    def end_user(self, name):
        if name in self.users:
            self.client.delete(self.users.pop(name))

    def grow(self, name, value):
        try:
            self.client.call("PATCH", f"/v1/volumes/{name}", {"size_bytes": value["mib"] * MIB})
        except ApiError as error:  # not every root may while it is used
            if error.code != "unsupported":
                raise
            self.end_user(name)
            self.client.call("PATCH", f"/v1/volumes/{name}", {"size_bytes": value["mib"] * MIB})

    def upload(self, name, value):
        info = tarfile.TarInfo(digest(value["text"]))
        info.size, info.uid, info.gid = len(content(value["text"])), 1000, 1000
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                tar.addfile(info, io.BytesIO(content(value["text"])))
            self.client.call("PUT", f"/v1/volumes/{name}/archive", buffer.getvalue())

    def write(self, name, value):
        """By a sandbox, which lives on: the cut comes while the volume is mounted."""
        if name not in self.users:
            self.users[name] = self.client.create(image=TOOLS, limits=LIMITS, volumes=[{"name": name, "target": "/data"}])["id"]
        write_file(self.client, self.users[name], "/data", value["text"])

    def find(self, name):
        image = pathlib.Path("/tmp/power/state/volumes") / name / "image"
        try:
            volume = self.client.call("GET", f"/v1/volumes/{name}")
        except ApiError as error:
            if error.code == "not_found":
                return None
            raise
        ext4.check(image, self.work / "checked")  # before anybody mounts it
        status, _, archive = self.client.raw("GET", f"/v1/volumes/{name}/archive")
        if volume["state"] != "ready" or status != 200:
            return f"{volume['state']}, {status}: {archive[:500]}"
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            whole = [m.name for m in tar if m.isfile() and hashlib.sha256(tar.extractfile(m).read()).hexdigest() == m.name]
        return self.told({"mib": volume["size_bytes"] // MIB, "files": sorted(whole)})

    @staticmethod
    def told(value):
        return value and f"{value['mib']} MiB with {[name[:8] for name in value['files']]}"


def write_file(client, sandbox, directory, text):
    """Written through, as its own directory entry is."""
    command = f"dd of={directory}/{digest(text)} bs=64k conv=fsync && sync {directory}"
    client.output(sandbox, ["sh", "-c", command], stdin_base64=base64.b64encode(content(text)).decode())


class Sandboxes(Kind):
    """The value is {"state": "running", "stopped" or "destroyed", "files": digests, "id", "at", "before": the value until then}.
    One that ran is told as failed after a cut, once. That it runs, or ran, is written through a moment after it is told."""
    kind, route = "sandbox", "/v1/sandboxes/{id}/stop"
    FILES, BEHIND = 6, 2.5  # seconds, more than the moment and less than QUIET

    def __init__(self, client, work):
        super().__init__(client, work)
        self.started = None  # the name of the one that was started just now

    def pick(self, dice):
        return self.started if self.started and dice.random() < 0.5 else super().pick(dice)

    def plan(self, name, before, text, dice):
        hurry, self.started = self.started == name, None
        roll = dice.random()
        if before is None or before["state"] == "destroyed":
            return {"state": "running", "files": [], "at": time.time(), "before": None}
        known = {key: before[key] for key in ("state", "files", "id")}
        if known["state"] == "running":
            destroyed = {**known, "state": "destroyed", "at": time.time()}
            return destroyed if hurry or roll < 0.3 else {**with_file(known, text), "state": "stopped"}
        if roll < 0.3 or len(known["files"]) >= self.FILES:
            return None
        return {**known, "state": "running", "at": time.time(), "before": known}

    def change(self, name, before, value):
        if value is None or value["state"] == "destroyed":
            self.client.delete(before["id"])
        elif value["state"] == "stopped":
            command = ["sh", "-c", f"cat > /workspace/{digest(value['text'])}"]
            self.client.output(before["id"], command, stdin_base64=base64.b64encode(content(value["text"])).decode())
            self.stop(before["id"])
        elif value["before"] is None:
            value = {**value, "id": self.client.create(image=TOOLS, limits=LIMITS, name=name)["id"]}
        else:
            self.start(before["id"])
            self.started = name
        return value if value is None or "at" not in value else {**value, "at": time.time()}

    def allowed(self, value, cut_at):
        failed = ("failed: host_restarted", None)
        if value is None or value["state"] == "stopped":
            return super().allowed(value, cut_at)
        new = cut_at - value["at"] < self.BEHIND
        if value["state"] == "destroyed":
            return [(None, None)] + [failed] * new
        return [failed] + [(self.told(value["before"]), value["before"])] * new

    def start(self, sandbox):
        started = self.client.call("POST", f"/v1/sandboxes/{sandbox}/start")
        if (started["id"], started["state"]) != (sandbox, "running"):
            raise AssertionError(f"sandbox {sandbox} is not started: {started}")

    def stop(self, sandbox):
        self.client.call("POST", f"/v1/sandboxes/{sandbox}/stop", {"timeout_seconds": 0})

    def find(self, name):
        """One that ended in an earlier life of the host counts no more."""
        rows = [row for row in self.client.call("GET", "/v1/sandboxes")["sandboxes"]
                if row["name"] == name and (row["ended_at"] is None or row["ended_at"] >= BEGUN)]
        if not rows:
            return None
        if len(rows) > 1 or rows[0]["state"] != "stopped":
            return ", ".join(f"{row['state']}: {row['cause']}" for row in rows)
        sandbox = rows[0]["id"]
        self.start(sandbox)
        lines = self.client.output(sandbox, ["sh", "-c", "cd /workspace && sha256sum *"]).splitlines()
        self.stop(sandbox)
        whole = sorted(name for hashed, name in map(str.split, lines) if hashed == name)
        return self.told({"state": "stopped", "id": sandbox, "files": whole})

    @staticmethod
    def told(value):
        return value and f"stopped {value['id']} with {[name[:8] for name in value['files']]}"


KINDS = (Images, Networks, Volumes, Sandboxes)


class Host:
    def __init__(self, tree, out, wrap, kinds):
        self.base = pathlib.Path("/tmp/power")
        self.base.mkdir(exist_ok=True)
        self.work = pathlib.Path("/dev/shm/work")
        self.work.mkdir(exist_ok=True)
        self.tree, self.wrap, self.names, self.ledger = tree, wrap, kinds, Ledger(out / "ledger")
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
        import_image(client, self.work, TOOLS, {})
        self.kinds = [kind(client, self.work) for kind in KINDS if kind.kind in self.names and kind.route in self.routes]

    def half_made(self):
        """Names that only exist while something is being made."""
        return [str(path) for path in (self.base / "state").rglob("*")
                if "layers" not in path.parts and path.name.startswith((".new", ".tmp", ".old")) or path.name.endswith(".new")]

    def look(self):
        wrong, found = [], {}
        for kind in self.kinds:
            for name, (state, value) in self.ledger.of(kind.kind).items():
                values = value if state == MAYBE else [value]
                allowed = [pair for v in values for pair in kind.allowed(v, self.ledger.cut_at)]
                got = kind.find(name)
                found[kind.kind] = found.get(kind.kind, 0) + (got is not None)
                if got not in (told for told, _ in allowed):
                    wrong.append(f"{kind.kind} {name} is {got}, not one of {[told for told, _ in allowed]} ({state})")
                # From here on it is known.
                self.tell(kind, name, next((v for told, v in allowed if told == got), None))
        wrong += [f"half made: {path}" for path in self.half_made()]
        return {"found": found, "wrong": wrong}

    def tell(self, kind, name, value):
        told = ("gone" if value is None else "there", value)
        self.ledger.known[kind.kind, name] = told
        self.ledger.write(kind.kind, name, *told)

    def work_on(self, dice):
        while True:
            if dice.random() < 1 / 16:  # nothing that others write through takes along what is not
                self.ledger.rest(QUIET)
            kind = dice.choice(self.kinds)
            name = kind.pick(dice)
            _, before = self.ledger.known.get((kind.kind, name), ("gone", None))
            value = kind.plan(name, before, f"{name} {dice.getrandbits(64)}", dice)
            self.ledger.write(kind.kind, name, MAYBE, value)
            self.tell(kind, name, kind.change(name, before, value))


def main():
    tree, out, seed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    host = Host(tree, out, sys.argv[4].split(), sys.argv[5].split(","))
    host.start()
    verdict = host.look()
    (out / "verdict.new").write_text(json.dumps(verdict))
    os.rename(out / "verdict.new", out / "verdict")
    (out / "working").write_text("")
    while verdict["wrong"]:  # what is not as it should be is not worked on
        time.sleep(1)
    host.work_on(random.Random(seed))


if __name__ == "__main__":
    main()
