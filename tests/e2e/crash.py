"""Clients use a hutchd that is killed at named places, at random times, and while another takes over. What was acknowledged must be true
afterwards, what was not must be there whole or not at all, and in the end nothing may be left."""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time

from client import ApiError, Client
from daemon import ENDS, HUTCHD, Daemon, cgroup_roots, wait_until
from images import Layout, Tar

CUT = (OSError, http.client.HTTPException, ValueError)  # what a client sees of a daemon that is killed
MARK = "HUTCH_CRASH_MARK"  # in the environment of all that is started, to find what is left
LIMITS = {"pids": 32, "memory_bytes": 64 << 20, "disk_bytes": 16 << 20}
LINE = b"line %d of some length, so that the log is rotated\n"
NETWORKS = ({"mode": "none"}, {"mode": "allowlist", "allow": ["example.org:443"]}, {"mode": "allowlist", "allow": ["a.test:80", "b.test:443"]})
# Reached so often that the first time says little: up to so many are let pass.
FREQUENT = {"answer unsent": 30, "answer sent": 30, "state file unwritten": 12, "state file written": 12, "log bytes moved": 20}
TAKEOVER = ("listeners handed over", "drained for a successor", "predecessor gone")


class Broken(AssertionError):
    """A promise was not kept."""


def check(condition, what):
    if not condition:
        raise Broken(what)


def links():
    return {link["ifname"] for link in json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)}


def fault_points():
    return subprocess.run([HUTCHD, "--list-fault-points"], capture_output=True, text=True, check=True).stdout.splitlines()


class Process:
    """One that was acknowledged: so many lines, then its code."""

    def __init__(self, lines, code):
        self.lines, self.code = lines, code

    def command(self):
        return f"i=0; while [ $i -lt {self.lines} ]; do echo line $i of some length, so that the log is rotated; i=$((i+1)); done; exit {self.code}"

    def output(self):
        return b"".join(LINE % i for i in range(self.lines))


class Box:
    """What is known of one sandbox. Where a call was not answered there are two possible values."""

    def __init__(self, number, seed):
        self.name, self.key = f"box-{seed}-{number}", f"key-{seed}-{number}"
        self.id = None
        self.gone = False
        self.files = {}  # path: list of possible contents; None: no such file
        self.processes, self.unknown_processes = {}, 0
        self.removed_processes = set()
        self.states = ["running"]
        self.ports = {}  # port inside: list of whether it is forwarded
        self.host_ports = {}
        self.labels = [{"made": "0"}]
        self.networks = [NETWORKS[0]]

    def body(self):
        return {"image": "busybox", "name": self.name, "labels": {"made": "0"}, "limits": LIMITS, "timeouts": {"idle_seconds": 0, "lifetime_seconds": 0}}

    @property
    def path(self):
        return f"/v1/sandboxes/{self.id}"


class Worker(threading.Thread):
    """One client with sandboxes and images of its own."""

    def __init__(self, harness, number):
        super().__init__(daemon=True)
        self.harness, self.number = harness, number
        self.random = random.Random(f"{harness.seed}.{number}")
        self.boxes, self.images = [], {}  # images: name: list of whether it is there
        self.made = 0
        self.client = None
        self.broken = None
        self.calls = 0

    def again(self):
        """A thread for the next round, with the same knowledge."""
        successor = type(self)(self.harness, self.number)
        successor.random, successor.boxes, successor.images, successor.made, successor.calls = self.random, self.boxes, self.images, self.made, self.calls
        return successor

    def run(self):
        self.client = self.harness.client()
        try:
            while not self.harness.stop.is_set():
                self.one()
        except CUT as error:
            if not self.harness.excuses(error):
                self.broken = Broken(f"a call was cut while hutchd lives: {error!r}")
        except (ApiError, AssertionError) as error:
            self.broken = error
        finally:
            self.client.close()

    def call(self, *arguments, **more):
        self.calls += 1
        return self.client.call(*arguments, **more)

    def one(self):
        living = [box for box in self.boxes if box.id and not box.gone]
        if len(living) < 2 or self.random.random() < 0.12 and len(living) < 5:
            return self.create()
        box = self.random.choice(living)
        if len(living) > 3 and self.random.random() < 0.3:
            return self.delete(box)
        if self.random.random() < 0.06:
            return self.image()
        if box.states == ["paused"]:
            return self.resume(box) if self.random.random() < 0.7 else self.delete(box)
        acts = {self.file: 6, self.remove_file: 1, self.execute: 5, self.process: 4, self.remove_process: 1, self.pause: 2, self.port: 2, self.label: 2,
                self.network: 1, self.delete: 1, self.replay: 1}
        acts.update(self.more_acts())
        return self.random.choices(list(acts), list(acts.values()))[0](box)

    def more_acts(self):
        return {}

    # --- each call: first what may become true, then what is
    def create(self):
        box = Box(f"{self.number}-{self.made}", self.harness.seed)
        self.made += 1
        self.boxes.append(box)
        self.settle(box)

    def settle(self, box):
        """Makes it, or finds what was made when nobody heard the answer."""
        box.id = self.call("POST", "/v1/sandboxes", box.body(), headers={"Idempotency-Key": box.key})["id"]

    def replay(self, box):
        check(self.call("POST", "/v1/sandboxes", box.body(), headers={"Idempotency-Key": box.key})["id"] == box.id, f"{box.name}: its key made another one")

    def delete(self, box):
        box.states = [*box.states, "gone"]
        self.call("DELETE", box.path)
        box.gone = True

    def file(self, box):
        path = f"/workspace/f{self.random.randrange(4)}"
        content = self.random.randbytes(self.random.choice((0, 10, 5000, 200_000)))
        box.files.setdefault(path, [None]).append(content)
        status, _, body = self.client.raw("PUT", f"{box.path}/files{path}", content)
        check(status in (200, 201), f"PUT {path}: {status} {body[:300]}")
        box.files[path] = [content]

    def remove_file(self, box):
        there = [path for path, contents in box.files.items() if contents[-1] is not None]
        if not there:
            return
        path = self.random.choice(there)
        box.files[path].append(None)
        self.call("DELETE", f"{box.path}/files{path}")
        box.files[path] = [None]

    def execute(self, box):
        mark = str(self.random.randrange(1 << 30))
        path = "/workspace/mark"
        box.files.setdefault(path, [None]).extend([mark.encode() + b"\n", b""])  # empty: between the shell's open and its write
        done = self.call("POST", f"{box.path}/exec", {"command": f"echo {mark} > {path}; echo {mark}; exit 3"})
        check((done["exit_code"], done["stdout"]) == (3, mark + "\n"), f"{box.name}: exec: {done}")
        box.files[path] = [mark.encode() + b"\n"]

    def process(self, box):
        process = Process(self.random.choice((0, 1, 50, 3000)), self.random.randrange(120))
        box.unknown_processes += 1
        made = self.call("POST", f"{box.path}/processes", {"command": process.command(), "log_bytes": 65536})
        box.unknown_processes -= 1
        box.processes[made["id"]] = process

    def remove_process(self, box):
        if not box.processes:
            return
        name = self.random.choice(list(box.processes))
        del box.processes[name]
        box.removed_processes.add((name, False))
        self.call("DELETE", f"{box.path}/processes/{name}")
        box.removed_processes.remove((name, False))
        box.removed_processes.add((name, True))

    def pause(self, box):
        box.states = ["running", "paused"]
        check(self.call("POST", f"{box.path}/pause", {})["state"] == "paused", f"{box.name} is not paused")
        box.states = ["paused"]

    def resume(self, box):
        box.states = ["running", "paused"]
        check(self.call("POST", f"{box.path}/resume")["state"] == "running", f"{box.name} does not run")
        box.states = ["running"]

    def port(self, box):
        port = 3000 + self.random.randrange(3)
        if box.ports.get(port) == [True]:
            box.ports[port] = [True, False]
            self.call("DELETE", f"{box.path}/ports/{port}")
            box.ports[port] = [False]
            return
        known = box.ports.get(port)
        box.ports[port] = [True, False]
        try:
            made = self.call("POST", f"{box.path}/ports", {"port": port})
        except ApiError as error:
            if error.code != "exists" or known != [True, False]:  # a fork may have it from its source
                raise
            made = next(one for one in self.call("GET", f"{box.path}/ports")["ports"] if one["port"] == port)
        box.host_ports[port] = made["host_port"]
        box.ports[port] = [True]

    def label(self, box):
        labels = {"made": str(self.random.randrange(1 << 20))}
        box.labels.append(labels)
        self.call("PATCH", box.path, {"labels": labels})
        box.labels = [labels]

    def network(self, box):
        policy = self.random.choice(NETWORKS)
        box.networks = [NETWORKS[0], *box.networks, policy]  # one that is changed may be left closed
        self.call("PATCH", box.path, {"network": policy})
        box.networks = [policy]

    def image(self):
        name = f"image-{self.number}-{self.random.randrange(3)}:1"
        if self.images.get(name) == [True]:
            self.images[name] = [True, False]
            self.call("DELETE", "/v1/images/" + name)
            self.images[name] = [False]
            return
        self.images[name] = [True, False]
        self.call("POST", "/v1/images/import", {"path": self.harness.layout(name), "reference": name})
        self.images[name] = [True]

    # --- after a crash: this client alone
    def verify(self):
        self.client = self.harness.client()
        try:
            listed = self.call("GET", "/v1/sandboxes")["sandboxes"]
            by_name = collections.defaultdict(list)
            for one in listed:
                if one["state"] not in ENDS:
                    by_name[one["name"]].append(one)
            for box in list(self.boxes):
                found = by_name.get(box.name, [])
                check(len(found) <= 1, f"{box.name} is there {len(found)} times")
                self.verify_box(box, found[0] if found else None)
            self.verify_images()
        finally:
            self.client.close()

    def verify_box(self, box, found):
        if box.gone or "gone" in box.states:
            check(not (box.gone and found), f"{box.name} ({box.id}) was deleted and is there")
            if not found:
                box.gone = True
                self.boxes.remove(box)
                return
            box.states.remove("gone")
        if box.id is None:
            self.settle(box)
            check(not found or found["id"] == box.id, f"{box.name}: {found and found['id']} was half made, its key made {box.id}")
            found = self.call("GET", box.path)
        check(found, f"{box.name} ({box.id}) was acknowledged and is lost")
        check(found["id"] == box.id, f"{box.name} is another one")
        check(found["state"] in box.states, f"{box.name} is {found['state']}, not {box.states}")
        box.states = [found["state"]]
        check(found["labels"] in box.labels, f"{box.name}: labels {found['labels']}, not {box.labels}")
        box.labels = [found["labels"]]
        self.verify_network(box)
        if found["state"] != "running" and self.random.random() < 0.5:
            return
        self.wake(box, found["state"])
        self.verify_ports(box)
        self.verify_files(box)
        self.verify_processes(box)
        self.replay(box)

    def wake(self, box, _state):
        self.resume(box)

    def verify_network(self, box):
        network = self.call("GET", box.path + "/network")
        seen = (network["mode"], sorted(rule["origin"] for rule in network["allow"]))
        told = [policy for policy in box.networks if (policy["mode"], sorted(policy.get("allow", []))) == seen]
        check(told, f"{box.name}: network {seen}, not one of {box.networks}")
        box.networks = told[:1]

    def verify_ports(self, box):
        listed = {port["port"]: port for port in self.call("GET", box.path + "/ports")["ports"]}
        for port, possible in box.ports.items():
            check((port in listed) in possible, f"{box.name}: port {port} {'is' if port in listed else 'is not'} forwarded")
            box.ports[port] = [port in listed]
            if port not in listed:
                continue
            check(not listed[port].get("error"), f"{box.name}: {listed[port]}")
            host_port = listed[port]["host_port"]
            check(len(possible) > 1 or host_port == box.host_ports[port], f"{box.name}: another host port: {listed[port]}")
            box.host_ports[port] = host_port
            try:
                socket.create_connection(("127.0.0.1", host_port), timeout=20).close()
            except ConnectionResetError:
                pass  # it listens; nobody does inside
        check(set(listed) <= set(box.ports), f"{box.name}: ports that nobody asked for: {listed}")

    def verify_files(self, box):
        for path, possible in box.files.items():
            status, _, body = self.client.raw("GET", f"{box.path}/files{path}")
            content = None if status == 404 else body
            check(status in (200, 404), f"{box.name}: {path}: {status} {body[:300]}")
            check(content in possible, f"{box.name}: {path} has {content and content[:40]} ({content is not None and len(content)} bytes), "
                                       f"not {[one and (one[:40], len(one)) for one in possible]}")
            box.files[path] = [content]
        # Nothing beside them: a write that was cut leaves no temporary name.
        names = self.call("POST", f"{box.path}/exec", {"command": "ls -A /workspace"})["stdout"].split()
        check(set(names) <= {path.rpartition("/")[2] for path, contents in box.files.items() if contents != [None]}, f"{box.name}: /workspace has {names}")

    def verify_processes(self, box):
        listed = {one["id"]: one for one in self.call("GET", box.path + "/processes")["processes"]}
        unknown = set(listed) - set(box.processes)
        for name, sure in list(box.removed_processes):
            check(not sure or name not in listed, f"{box.name}: {name} was removed and is there")
            unknown.discard(name)
        check(len(unknown) <= box.unknown_processes, f"{box.name}: processes that nobody started: {unknown}")
        for name, process in box.processes.items():
            check(name in listed, f"{box.name}: {name} is lost")
            ended = self.call("GET", f"{box.path}/processes/{name}?wait_seconds=60")
            check((ended["state"], ended["exit_code"]) == ("exited", process.code), f"{box.name}: {ended}, not {process.code}")
            wanted = process.output()
            check((ended["stdout_bytes"], ended["output_lost_bytes"]) == (len(wanted), 0), f"{box.name}: {ended}, not {len(wanted)} bytes")
            output = self.call("GET", f"{box.path}/processes/{name}/output?max_bytes=4194304")
            kept = "".join(chunk["data"] for chunk in output["chunks"]).encode()
            check(kept == wanted[len(wanted) - len(kept):] and ended["output_end"] - ended["output_begin"] == len(kept), f"{box.name}: {name}: other bytes")
        # What nobody heard of is told, too, or does not run.
        def counted():
            running = sum(one["state"] == "running" for one in self.call("GET", box.path + "/processes")["processes"])
            return self.call("GET", box.path)["processes"] == running
        wait_until(counted, f"{box.name}: no process runs that is not listed")

    def verify_images(self):
        names = {name for image in self.call("GET", "/v1/images")["images"] for name in image["references"]}
        for name, possible in self.images.items():
            check((name in names) in possible, f"image {name} {'is' if name in names else 'is not'} there")
            self.images[name] = [name in names]
            if name in names:
                check(self.call("GET", "/v1/images/" + name)["references"], name)

    def remove_all(self):
        self.client = self.harness.client()
        try:
            for box in self.boxes:
                if not box.gone:
                    self.delete(box)
            self.boxes.clear()
            for name, there in self.images.items():
                if there == [True]:
                    self.call("DELETE", "/v1/images/" + name)
            self.images.clear()
        finally:
            self.client.close()


class Harness:
    def __init__(self, seed=1, clients=3, seconds=1.5, worker=Worker):
        self.seed, self.seconds, self.worker = seed, seconds, worker
        self.random = random.Random(seed)
        self.stop = threading.Event()
        self.daemon = Daemon(config={"limits": {"shutdown_seconds": 20}})
        self.mark = f"{os.getpid()}-{seed}"
        self.workers = [worker(self, number) for number in range(clients)]
        self.hits = collections.Counter()  # places at which hutchd was killed
        self.tried = collections.Counter()
        self.rounds = 0
        self.layouts = {}
        self.routes = set()
        self.following = False
        self.links = links()  # a kernel may make some of its own

    # --- the daemon
    def launch(self, fault=None, *options):
        environment = {**os.environ, MARK: self.mark}
        environment.pop("HUTCH_FAULT", None)
        if fault:
            environment["HUTCH_FAULT"] = fault
        with open(self.daemon.log, "ab") as log:
            log.write(f"--- round {self.rounds}: {fault} {options}\n".encode())
            log.flush()
            return subprocess.Popen([*self.daemon.command(), *options], stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def start(self, fault=None):
        """Whether it came so far as to answer."""
        self.daemon.process = self.launch(fault)

        def settled():
            with contextlib.suppress(AssertionError):  # it has ended
                return self.daemon.answers()
            return True
        wait_until(settled, "hutchd answers or ends")
        if self.daemon.process.poll() is None:
            return True
        check(fault and self.daemon.process.returncode == -signal.SIGKILL, f"hutchd ended with {self.daemon.process.returncode}")
        return False

    def client(self):
        return Client(self.daemon.socket, 60)

    def excuses(self, error):
        """Of one that is killed anything; while another takes over only that a connection which was kept alive is closed."""
        if self.following:
            return isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.daemon.process.wait(5)
        return self.daemon.process.poll() is not None

    def begin(self):
        self.start()
        self.daemon.import_busybox()
        client = self.client()
        self.routes = set(client.call("GET", "/v1/openapi.json")["paths"])
        client.close()

    def layout(self, name):
        """A small image of its own for each name."""
        if name not in self.layouts:
            directory = self.daemon.dir / f"layout-{len(self.layouts)}"
            layout = Layout(directory).add(Tar().directory("d").file("d/name", name.encode()).bytes(), "gzip")
            self.layouts[name] = layout.finish(name=name)
        return str(self.layouts[name])

    # --- rounds
    def work(self, ended, seconds):
        """Lets the clients work until `ended` says so or the time is over; then they are cut or stop by themselves."""
        self.stop.clear()
        self.workers = [worker.again() for worker in self.workers]
        for worker in self.workers:
            worker.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not ended():
            time.sleep(0.005)

    def join(self):
        self.stop.set()
        for worker in self.workers:
            if worker.ident:  # it was started
                worker.join()
        for worker in self.workers:
            if worker.broken:
                raise worker.broken

    def round(self, point):
        """hutchd is killed at `point` ("random": at any time), and the next one is asked."""
        self.rounds += 1
        self.tried[point] += 1
        if point in TAKEOVER:
            hit = self.take_over(point)
        else:
            times = self.random.randint(1, FREQUENT.get(point, 4))
            hit = self.die(None if point == "random" else f"{point}#{times}")
        self.hits[point] += hit or point == "random"
        if self.daemon.process.poll() is not None:
            self.start()
        for worker in self.workers:
            worker.verify()
        self.daemon.kill()
        return hit

    def die(self, fault):
        if self.start(fault):
            self.work(lambda: self.daemon.process.poll() is not None, self.random.uniform(0.05, self.seconds) if fault is None else self.seconds)
        hit = self.daemon.process.poll() is not None
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait()
        self.join()
        check(self.daemon.process.returncode == -signal.SIGKILL, f"hutchd ended with {self.daemon.process.returncode}")
        return hit and fault is not None

    def take_over(self, point):
        """One is told to follow while clients work; the place is in the old one or in the new one."""
        of_new = point == "predecessor gone"
        self.following = True
        self.start(None if of_new else point)
        old = self.daemon.process
        self.work(lambda: False, self.random.uniform(0.1, 0.5))
        new = self.launch(point if of_new else None, "--takeover")

        wait_until(lambda: new.poll() is not None or old.poll() is not None, "one of the two ends")
        if new.poll() is None:
            self.daemon.process = new
            self.answers_health()
        elif old.poll() is None:  # the old one goes on
            self.answers_health()
        time.sleep(0.1)
        self.join()
        self.following = False
        hit = -signal.SIGKILL in (new.poll(), old.poll())
        for one in (new, old):
            check(one.poll() in (None, 0, -signal.SIGKILL) or old.poll() == -signal.SIGKILL, f"hutchd ended with {one.poll()}")
        return hit

    def answers_health(self):
        client = self.client()
        try:
            client.call("GET", "/v1/health")
        except CUT:
            wait_until(lambda: self.daemon.process.poll() is not None, "the one that cut a call has ended")
        finally:
            client.close()

    # --- the end
    def marked(self):
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry.name, (entry / "cmdline").read_bytes()[:80]))
                except OSError:
                    continue
        return found

    def left(self):
        """What is left when everything was deleted and hutchd has stopped."""
        state = self.daemon.dir / "state"
        left = self.daemon.leftovers() + [str(one) for one in self.marked()]
        left += [str(path) for folder in ("processes", "stopped", "volumes") if (state / folder).is_dir() for path in (state / folder).iterdir()]
        layers = [path for path in (state / "layers").iterdir()]
        left += [str(path) for path in layers if path.name.startswith(".")] + ([str(layers)] if len(layers) != 1 else [])
        blobs = list((state / "images/blobs/sha256").iterdir())
        left += [str(blobs)] if len(blobs) != 2 else []
        left += sorted(links() - self.links)
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
        return left + [line for line in loops.splitlines() if str(self.daemon.dir) in line]

    def sweep(self):
        """Deletes everything that is known, stops in good order, and looks for what is left."""
        self.start()
        for worker in self.workers:
            worker.verify()
            worker.remove_all()
        client = self.client()
        living = [one for one in client.call("GET", "/v1/sandboxes")["sandboxes"] if one["state"] not in ENDS]
        check(not living, f"sandboxes that nobody made: {living}")
        quarantined = client.call("GET", "/v1/info").get("quarantined")
        check(not quarantined, f"quarantined: {quarantined}")
        client.call("POST", "/v1/images/prune", {})
        client.close()
        check(self.daemon.stop() == 0, "hutchd did not stop in good order")
        wait_until(lambda: not self.left(), f"nothing is left: {self.left()}", 20)
        self.workers = [self.worker(self, worker.number + len(self.workers)) for worker in self.workers]

    def close(self):
        """Ends all that it started, whatever state that is in."""
        if self.daemon.process.poll() is None:
            self.daemon.kill()
        for pid in (int(pid) for root in cgroup_roots() for procs in pathlib.Path(root + self.daemon.parent).rglob("cgroup.procs")
                    for pid in procs.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(": " in line for line in self.daemon.leftovers()), "its processes end", 10)
        self.daemon.remove_groups()
