"""What tools/crash-test does besides where the daemon offers it: stops and starts, snapshots and forks, volumes, pools."""
import copy

from crash import Box, Worker, check

VOLUME_BYTES = 16 << 20


class MoreWorker(Worker):
    def __init__(self, harness, number):
        super().__init__(harness, number)
        self.volumes, self.pools = {}, {}  # name: list of whether it is there

    def again(self):
        successor = super().again()
        successor.volumes, successor.pools = self.volumes, self.pools
        return successor

    def offered(self, route):
        return route in self.harness.routes

    def more_acts(self):
        rows = (("/v1/sandboxes/{id}/stop", self.stop, 2), ("/v1/sandboxes/{id}/snapshot", self.snapshot, 1), ("/v1/sandboxes/{id}/fork", self.fork, 1),
                ("/v1/volumes", self.volume, 1), ("/v1/pools/{name}", self.pool, 1))
        return {act: weight for route, act, weight in rows if self.offered(route)}

    def one(self):
        stopped = [box for box in self.boxes if not box.gone and box.states == ["stopped"]]
        if stopped:
            box = self.random.choice(stopped)
            return self.start_box(box) if self.random.random() < 0.7 else self.delete(box)
        return super().one()

    def stop(self, box):
        if box.states != ["running"]:
            return
        box.states = ["running", "stopped"]
        box.processes.clear()  # they may end now, whatever they were to do
        box.unknown_processes += 1000
        check(self.call("POST", box.path + "/stop", {"timeout_seconds": 0})["state"] == "stopped", f"{box.name} is not stopped")
        box.states = ["stopped"]

    def start_box(self, box):
        box.states = ["running", "stopped"]
        check(self.call("POST", box.path + "/start")["state"] == "running", f"{box.name} was not started")
        box.states = ["running"]

    def snapshot(self, box):
        name = f"image-{self.number}-{self.random.randrange(3)}:1"
        if self.images.get(name) == [True]:
            return
        self.images[name] = [True, False]
        self.call("POST", box.path + "/snapshot", {"reference": name})
        self.images[name] = [True]

    def fork(self, box):
        if any(len(contents) != 1 for contents in box.files.values()):
            return
        fork = Box(f"{self.number}-{self.made}", self.harness.seed)
        self.made += 1
        fork.forked_from = box.id
        fork.name += "-1"
        fork.files = copy.deepcopy(box.files)
        fork.labels = [{**labels, "forked_from": box.id} for labels in box.labels]
        fork.networks = list(box.networks)
        fork.ports = {port: [True, False] for port in box.ports}
        self.boxes.append(fork)
        made = self.call("POST", box.path + "/fork", {"count": 1, "name": fork.name[:-2]})
        fork.id = made["sandboxes"][0]["id"]

    def label(self, box):
        if not getattr(box, "forked_from", None):
            super().label(box)

    def replay(self, box):
        if not getattr(box, "forked_from", None):
            super().replay(box)

    def volume(self, _box):
        name = f"volume-{self.number}-{self.random.randrange(3)}"
        if self.volumes.get(name) == [True]:
            self.volumes[name] = [True, False]
            self.call("DELETE", "/v1/volumes/" + name)
            self.volumes[name] = [False]
            return
        self.volumes[name] = [True, False]
        self.call("POST", "/v1/volumes", {"name": name, "size_bytes": VOLUME_BYTES})
        self.volumes[name] = [True]

    def pool(self, _box):
        name = f"pool-{self.number}"
        if self.pools.get(name) == [True]:
            self.pools[name] = [True, False]
            self.call("DELETE", "/v1/pools/" + name)
            self.pools[name] = [False]
            return
        self.pools[name] = [True, False]
        self.call("PUT", "/v1/pools/" + name, {"image": "busybox", "ready": 1})
        self.pools[name] = [True]

    # --- after a crash
    def verify_box(self, box, found):
        if box.id is None and getattr(box, "forked_from", None):
            if not found:  # nobody was told of it
                self.boxes.remove(box)
                return
            box.id = found["id"]
        super().verify_box(box, found)

    def wake(self, box, state):
        if state == "stopped":
            self.start_box(box)
        super().wake(box, state)

    def verify_images(self):
        super().verify_images()
        for kind, known in (("volumes", self.volumes), ("pools", self.pools)):
            if not known:
                continue
            names = {one["name"] for one in self.call("GET", "/v1/" + kind)[kind]}
            for name, possible in known.items():
                check((name in names) in possible, f"{kind}: {name} {'is' if name in names else 'is not'} there")
                known[name] = [name in names]

    def remove_all(self):
        super().remove_all()
        self.client = self.harness.client()
        try:
            for kind, known in (("volumes", self.volumes), ("pools", self.pools)):
                for name, there in known.items():
                    if there == [True]:
                        self.call("DELETE", f"/v1/{kind}/{name}")
                known.clear()
        finally:
            self.client.close()


