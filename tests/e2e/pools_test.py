"""Pools of sandboxes made ahead: taken once, by requests that want just these, and never lost or given twice whatever happens to hutchd."""
import contextlib
import json
import signal
import subprocess
import threading
import time
import unittest

from cli import CliCase
from daemon import MAKE_IMAGE, Daemon, wait_until
from templates_test import TemplateCase

SLOW = {"image": "busybox", "onCreateCommand": "sleep 0.2; echo prepared $$ >/workspace/made"}


class PoolCase(CliCase):
    def clean(self):
        if self.daemon.process.poll() is None:
            for pool in self.pools():
                if pool["source"] == "api":
                    self.client.call("DELETE", f"/v1/pools/{pool['name']}")
        super().clean()

    def pools(self):
        return self.client.call("GET", "/v1/pools")["pools"]

    def put(self, name, **spec):
        return self.client.call("PUT", f"/v1/pools/{name}", spec)

    def pool(self, name):
        return self.client.call("GET", f"/v1/pools/{name}")

    def counts(self, name):
        return self.pool(name)["counts"]

    def ready(self, name, count):
        return wait_until(lambda: self.counts(name)["ready"] == count and self.pool(name), f"{count} are ready: {self.pool(name)}")

    def pooled(self):
        return [s["id"] for s in self.client.call("GET", "/v1/sandboxes?pooled=true")["sandboxes"]]

    def seen(self):
        return {s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]}

    def kinds(self, box):
        return [e["kind"] for e in self.client.call("GET", f"/v1/events?sandbox={box}")["events"]]


class Hits(PoolCase, TemplateCase):
    def test_what_the_template_prepared_is_there(self):
        self.box(**SLOW)
        self.put("box", template="box", ready=2)
        self.ready("box", 2)
        waiting = self.pooled()
        before = time.time()
        made = self.client.call("POST", "/v1/sandboxes", {"template": "box", "name": "one", "labels": {"a": "b"}, "ports": [3000],
                                                          "timeouts": {"idle_seconds": 100, "lifetime_seconds": 1000}})
        self.assertIn(made["id"], waiting)
        self.assertEqual((made["pool"], made["from_pool"], made["state"], made["name"], made["labels"]), ("box", True, "running", "one", {"a": "b"}))
        self.assertEqual(list(made["timings_ms"]), ["pool", "total"])
        self.assertEqual([(h["state"], h["cause"]) for h in made["history"]], [("creating", "requested"), ("running", "ready")])
        self.assertGreaterEqual(made["created_at"], time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before)))
        self.assertEqual(made["lifecycle"]["state"], "done")
        self.assertEqual([p["port"] for p in made["ports"]], [3000])
        self.assertEqual(self.client.output("one", "cat /workspace/made").split()[0], "prepared")
        self.assertIsNotNone(made["idle_expires_at"])
        self.assertIsNotNone(made["expires_at"])
        self.assertEqual(self.kinds(made["id"])[:2], ["sandbox.creating", "sandbox.running"])
        counts = self.ready("box", 2)["counts"]
        self.assertEqual((counts["hits"], counts["misses"], counts["made"]), (1, 0, 3))
        self.assertNotIn(made["id"], self.pooled())
        metrics = self.client.raw("GET", "/v1/metrics")[2].decode()
        self.assertIn('hutch_pool_hits_total{pool="box"} 1\n', metrics)
        self.assertIn('hutch_pool_ready{pool="box"} 2\n', metrics)

    def test_what_comes_with_the_request_is_given_to_it(self):
        self.put("plain", image="busybox:latest", ready=1)
        for fields in ({"name": "n"}, {"labels": {"k": "v"}}, {"owner": "me"}, {"session_key": "s/1"}, {"env": {"E": "mine"}}, {"workdir": "/tmp"},
                       {"timeouts": {"idle_seconds": 7}}, {"timeouts": {"on_expiry": "pause"}}, {"ports": [{"port": 80, "label": "web"}]}):
            self.ready("plain", 1)
            made = self.client.create(**fields)
            self.assertEqual(made["pool"], "plain", fields)
            shown = self.client.get(made["id"])
            for name in ("name", "owner", "session_key", "workdir", "labels"):
                if name in fields:
                    self.assertEqual(shown[name], fields[name])
            for name, value in fields.get("timeouts", {}).items():
                self.assertEqual(shown["timeouts"][name], value)
            if "env" in fields:
                self.assertEqual(self.client.output(made["id"], "echo $E $USER $HOME"), "mine sandbox /home/sandbox\n")
            if "workdir" in fields:
                self.assertEqual(self.client.output(made["id"], "pwd"), "/tmp\n")
            if "ports" in fields:
                self.assertEqual([p["port"] for p in self.client.call("GET", f"/v1/sandboxes/{made['id']}/ports")["ports"]], [80])
            if "session_key" in fields:
                self.assertEqual(self.client.create(**fields)["id"], made["id"])
        self.assertEqual(self.counts("plain")["misses"], 0)

    def test_each_other_field_is_a_miss(self):
        self.put("plain", image="busybox", ready=1)
        self.ready("plain", 1)
        waiting = self.pooled()
        differing = [{"limits": {"memory_bytes": 300 << 20}}, {"limits": {"cpus": 0.5}}, {"limits": {"pids": 99}}, {"limits": {"disk_bytes": 99 << 20}},
                     {"limits": {"open_files": 99}}, {"user": "root"}, {"user": "1234"}, {"rootfs": {"readonly": False}},
                     {"relax": {"proc": "full"}}, {"relax": {"no_new_privileges": False}}, {"network": {"mode": "allowlist", "allow": ["a.example"]}}]
        if self.client.call("GET", "/v1/sandboxes?pooled=true")["sandboxes"][0]["proc"] != "pids":  # all that some kernels can
            differing.append({"proc": "pids"})
        for count, fields in enumerate(differing, 1):
            made = self.client.create(**fields)
            self.assertIsNone(made["pool"], fields)
            self.assertEqual(self.counts("plain")["misses"], count, fields)
            self.client.delete(made["id"])
        self.assertEqual((self.pooled(), self.counts("plain")["hits"]), (waiting, 0))

    def test_commands_that_have_seen_another_environment_are_no_hit(self):
        self.box(image="busybox", onCreateCommand="echo $WHO >/workspace/who")
        self.put("box", template="box", ready=1)
        self.ready("box", 1)
        made = self.client.call("POST", "/v1/sandboxes", {"template": "box", "env": {"WHO": "me"}})
        self.assertIsNone(made["pool"])
        self.assertEqual(self.client.output(made["id"], "cat /workspace/who"), "me\n")

    def test_none_is_given_twice(self):
        self.put("plain", image="busybox", ready=12)
        self.ready("plain", 12)
        made, wrong = [], []

        def take():
            with contextlib.closing(self.daemon.client()) as client:
                for _ in range(3):
                    box = client.create()
                    made.append((box["id"], box["pool"]))
                    if client.exec(box["id"], "mkdir /workspace/mine")["exit_code"] != 0:
                        wrong.append(box["id"])

        threads = [threading.Thread(target=take) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids = [box for box, _ in made]
        self.assertEqual((len(ids), len(set(ids)), wrong), (48, 48, []))
        hits = sum(pool == "plain" for _, pool in made)
        counts = self.counts("plain")
        print(f"\n{hits} hits of 48")
        self.assertEqual((counts["hits"], counts["misses"]), (hits, 48 - hits))
        self.assertGreaterEqual(hits, 12)
        self.assertFalse(set(ids) & set(self.pooled()))
        self.daemon.remove_all()
        self.ready("plain", 12)

    def test_a_changed_template_is_a_miss_and_makes_anew(self):
        self.box(image="busybox", onCreateCommand="echo one >/workspace/made")
        self.put("box", template="box", ready=1)
        self.ready("box", 1)
        self.write("box", {"image": "busybox", "onCreateCommand": "echo two >/workspace/made"})
        made = self.client.call("POST", "/v1/sandboxes", {"template": "box"})
        self.assertEqual((made["pool"], self.client.output(made["id"], "cat /workspace/made")), (None, "two\n"))

        def again():
            box = self.client.call("POST", "/v1/sandboxes", {"template": "box"})
            return box["pool"] and box["id"]

        self.assertEqual(self.client.output(wait_until(again, "the pool has those of the new template"), "cat /workspace/made"), "two\n")

    def test_a_failing_command_is_told_and_not_tried_without_end(self):
        self.box(image="busybox", onCreateCommand="echo no such thing >&2; exit 3")
        self.put("box", template="box", ready=2)
        told = wait_until(lambda: self.pool("box")["last_error"] and self.pool("box"), "the failure is told")
        self.assertIn("no such thing", told["last_error"]["message"])
        time.sleep(2)
        counts = self.counts("box")
        self.assertEqual(counts["ready"], 0)
        wait_until(lambda: self.pool("box")["waits_for"] == "failure", "it waits before it tries again")
        self.assertLess(counts["failed"], 8)
        self.assertRegex(self.text("pool", "ls"), r"box +box +0 +2 +2 +0 +0 +\d+ +.*no such thing")
        self.write("box", {"image": "busybox", "onCreateCommand": "true"})
        self.assertIsNone(self.ready("box", 2)["last_error"])

    def test_demand_makes_it_grow(self):
        self.box(image="busybox", onCreateCommand="sleep 1")
        self.put("box", template="box", ready=1, max=4, demand=True)
        self.ready("box", 1)
        self.assertEqual(self.counts("box")["wanted"], 1)

        def take():
            with contextlib.closing(self.daemon.client()) as client:
                client.call("POST", "/v1/sandboxes", {"template": "box"})

        threads = [threading.Thread(target=take) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreater(self.counts("box")["wanted"], 1)
        self.assertLessEqual(self.counts("box")["wanted"], 4)
        wait_until(lambda: self.counts("box")["ready"] > 1, "more are ready")

    def test_those_of_an_older_image_go(self):
        self.client.call("POST", "/v1/images/busybox:latest/tag", {"reference": "moving:1"})
        self.put("moving", image="moving:1", ready=2)
        self.ready("moving", 2)
        old = set(self.pooled())
        subprocess.run([str(MAKE_IMAGE), str(self.daemon.dir)], check=True, stdout=subprocess.DEVNULL)
        other = self.daemon.dir / "busybox"
        change_image(other)
        self.client.call("POST", "/v1/images/import", {"path": str(other), "reference": "moving:1"})
        made = self.client.create(image="moving:1")
        self.assertNotIn(made["id"], old)
        self.assertNotEqual(made["image_id"], self.client.call("GET", "/v1/images/busybox:latest")["id"])
        wait_until(lambda: not old & set(self.pooled()) and self.counts("moving")["ready"] == 2, "others have taken their place")
        self.assertEqual(self.client.create(image="moving:1")["pool"], "moving")


def change_image(layout):
    """Another configuration, so another image of the same layers."""
    import hashlib
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs" / "sha256"

    def store(data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = json.loads((blobs / index["manifests"][0]["digest"].split(":")[1]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].split(":")[1]).read_text())
    config.setdefault("config", {})["Env"] = ["PATH=/bin:/usr/bin", "NEWER=yes"]
    manifest["config"].update(store(json.dumps(config).encode()))
    index["manifests"][0].update(store(json.dumps(manifest).encode()))
    (layout / "index.json").write_text(json.dumps(index))


class Hidden(PoolCase):
    config = {"owner_limits": {"sandboxes_per_user": 2}}

    def test_what_waits_is_nobodys(self):
        self.put("plain", image="busybox", ready=3)
        self.ready("plain", 3)
        waiting = self.pooled()
        self.assertEqual((len(waiting), self.seen() & set(waiting)), (3, set()))
        self.assertEqual(self.client.call("GET", "/v1/info")["counts"]["running"], 0)
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("PATCH", "", {"labels": {}}), ("POST", "/exec", {"command": "true"}),
                                   ("GET", "/files?path=/", None), ("PUT", "/files/workspace/a", b"x"), ("POST", "/pause", {}), ("GET", "/proxy/80/", None)):
            self.refused("not_found", method, f"/v1/sandboxes/{waiting[0]}{path}", body)
        for box in waiting:
            self.assertEqual(self.kinds(box), [])
        # They are not counted as anybody's until they are handed out, and then they are.
        boxes = [self.client.create()["id"], self.client.create()["id"]]
        self.assertEqual(self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox"})["step"], "admission")
        self.client.delete(boxes[0])
        self.assertEqual(self.kinds(boxes[0])[-1], "sandbox.destroyed")
        self.client.create()

    def test_pools_are_set_and_removed(self):
        self.assertEqual(self.text("pool", "set", "plain", "busybox", "--ready", "2", "--max", "3", "--memory", "64MiB"), "plain\n")
        self.ready("plain", 2)
        shown = json.loads(self.text("pool", "ls", "--json"))["pools"][0]
        self.assertEqual((shown["image"], shown["ready"], shown["max"], shown["request"]), ("busybox", 2, 3, {"limits": {"memory_bytes": 64 << 20}}))
        self.assertEqual(self.client.create(limits={"memory_bytes": 64 << 20})["pool"], "plain")
        self.ready("plain", 2)
        gone = self.pooled()
        self.put("plain", image="busybox", ready=1)  # others now
        wait_until(lambda: self.counts("plain")["ready"] == 1 and not set(self.pooled()) & set(gone), "those of the old request are gone")
        self.assertEqual(self.text("pool", "rm", "plain"), "plain\n")
        self.assertEqual((self.pooled(), self.pools()), ([], []))
        self.assertEqual(self.hutch("pool", "rm", "plain").returncode, 1)
        for spec, field in (({"image": "busybox", "ready": 2, "max": 1}, "max"), ({}, "template"), ({"image": "a", "template": "b"}, "template"),
                            ({"image": "busybox", "request": {"name": "x"}}, "request.name"), ({"image": "busybox", "more": 1}, "more"),
                            ({"image": "busybox", "ready": 257}, "ready")):
            self.assertEqual(self.refused("invalid_argument", "PUT", "/v1/pools/plain", spec)["field"], field)
        self.refused("invalid_argument", "PUT", "/v1/pools/No", {"image": "busybox"})
        self.put("wrong", image="busybox", request={"limits": {"pids": 1 << 30}})
        self.assertIn("pids", wait_until(lambda: self.pool("wrong")["last_error"], "what is wrong is told")["message"])


class Room(PoolCase):
    config = {"limits": {"sandboxes": 4}}

    def test_pools_give_their_room_to_requests(self):
        self.put("plain", image="busybox", ready=3)
        self.ready("plain", 3)
        boxes = [self.client.create(limits={"pids": 99})["id"] for _ in range(4)]
        self.assertEqual((self.pooled(), len(self.seen() & set(boxes))), ([], 4))
        self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox"})
        wait_until(lambda: self.pool("plain")["waits_for"] == "room", "it says that it waits for room")
        self.assertIsNone(self.pool("plain")["last_error"])
        for box in boxes:
            self.client.delete(box)
        self.ready("plain", 3)


class Configured(PoolCase):
    config = {"sandbox_pools": [{"name": "first", "image": "busybox", "ready": 1}]}

    def reload(self, pools):
        self.daemon.config.write_text(json.dumps({"registries": {"default": ""}, "sandbox_pools": pools}))
        self.daemon.process.send_signal(signal.SIGHUP)

    def test_the_configuration_has_them_too(self):
        self.assertEqual(self.ready("first", 1)["source"], "configuration")
        for method, body in (("PUT", {"image": "busybox"}), ("DELETE", None)):
            self.refused("bad_state", method, "/v1/pools/first", body)
        self.put("second", image="busybox", request={"limits": {"pids": 99}})
        self.reload([{"name": "third", "image": "busybox", "ready": 2, "request": {"user": "root"}}])
        wait_until(lambda: [p["name"] for p in self.pools()] == ["second", "third"], "the configuration was read again")
        self.ready("third", 2)
        self.assertEqual(self.client.create(user="root")["pool"], "third")
        self.reload([])
        wait_until(lambda: [p["name"] for p in self.pools()] == ["second"], "again")
        self.client.call("DELETE", "/v1/pools/second")
        wait_until(lambda: not self.pooled(), "all of them are gone")


class Lives(PoolCase):
    def again(self, end):
        end()
        self.client.close()
        self.daemon.start()
        self.client = self.daemon.client()

    def test_they_wait_through_restarts(self):
        self.put("plain", image="busybox", ready=3)
        self.ready("plain", 3)
        for end in (self.daemon.stop, self.daemon.kill):
            waiting = set(self.pooled())
            self.again(end)
            self.ready("plain", 3)
            self.assertEqual(set(self.pooled()), waiting)
            made = self.client.create(env={"E": "1"})
            self.assertIn(made["id"], waiting)
            self.again(self.daemon.kill)
            self.assertEqual((self.client.get(made["id"])["state"], self.client.output(made["id"], "echo $E")), ("running", "1\n"))
            self.ready("plain", 3)
            self.assertNotIn(made["id"], self.pooled())

    def test_killed_while_they_are_taken(self):
        self.put("plain", image="busybox", ready=6)
        for turn in range(3):
            self.ready("plain", 6)
            waiting, answered = set(self.pooled()), []

            def take():
                with contextlib.suppress(Exception), contextlib.closing(self.daemon.client()) as client:
                    answered.append(client.create())

            threads = [threading.Thread(target=take) for _ in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(0.002 * turn)
            self.daemon.kill()
            for thread in threads:
                thread.join()
            self.again(lambda: None)
            still, seen = set(self.pooled()), self.seen()
            self.assertFalse(still & seen)
            self.assertFalse(waiting - still - seen, "lost")
            for box in answered:
                self.assertEqual(self.client.get(box["id"])["state"], "running")
            self.daemon.remove_all()

    def test_those_of_no_pool_are_removed(self):
        self.put("plain", image="busybox", ready=2)
        self.ready("plain", 2)
        self.daemon.kill()
        (self.daemon.dir / "state" / "pools.json").unlink()
        self.again(lambda: None)
        wait_until(lambda: not self.pooled(), "nothing waits any more")
        self.assertEqual(self.pools(), [])

    def test_half_made_ones_are_undone(self):
        self.put("plain", image="busybox", ready=12)
        wait_until(lambda: self.counts("plain")["making"], "some are being made")
        self.again(self.daemon.kill)
        self.ready("plain", 12)
        self.assertEqual(len(self.pooled()), 12)


class Off(unittest.TestCase):
    def test_pools_off_means_these_too(self):
        daemon = Daemon("--pools", "off").start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()
        with contextlib.closing(daemon.client()) as client:
            client.call("PUT", "/v1/pools/plain", {"image": "busybox"})
            self.assertIsNone(client.create()["pool"])
            time.sleep(0.3)
            shown = client.call("GET", "/v1/pools/plain")
            self.assertEqual((shown["counts"]["wanted"], shown["counts"]["ready"], shown["waits_for"]), (0, 0, "pools are off"))
            client.call("DELETE", "/v1/pools/plain")


if __name__ == "__main__":
    unittest.main()
