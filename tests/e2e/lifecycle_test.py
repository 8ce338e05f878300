"""Sandboxes from creation to complete removal."""
import os
import signal
import time
import unittest

from daemon import DaemonCase, host_processes, wait_until


class Lifecycle(DaemonCase):
    def test_what_was_asked_for_is_shown(self):
        made = self.client.create(name="one", labels={"job": "7"}, owner="me", env={"A": "1"},
                                  limits={"memory_bytes": 128 << 20, "cpus": 0.5, "pids": 100})
        self.assertEqual((made["state"], made["name"], made["labels"], made["owner"]), ("running", "one", {"job": "7"}, "me"))
        self.assertEqual(made["limits"], {"memory_bytes": 128 << 20, "swap_bytes": 0, "cpus": 0.5, "pids": 100,
                                          "disk_bytes": 1 << 30, "open_files": 4096})
        self.assertEqual(made["image"], "busybox:latest")
        self.assertGreater(made["timings_ms"]["total"], 0)
        self.assertEqual(self.client.get("one")["id"], made["id"])
        self.assertEqual(self.client.output("one", "echo $A"), "1\n")
        listed = self.client.call("GET", "/v1/sandboxes?label=job=7&state=running")["sandboxes"]
        self.assertEqual([s["id"] for s in listed], [made["id"]])
        self.assertEqual(self.client.call("GET", "/v1/sandboxes?label=job=8")["sandboxes"], [])
        self.refused("exists", "POST", "/v1/sandboxes", {"image": "busybox", "name": "one"})

    def test_delete_is_complete_when_it_answers(self):
        made = self.client.create(name="again")
        self.client.exec("again", "sleep 770077 & sleep 770078 &")
        self.client.delete("again")
        self.assertFalse([g for g in self.daemon.groups() if made["id"] in g])
        self.assertFalse((self.daemon.dir / "run" / "sandboxes" / made["id"]).exists())
        self.assertFalse(host_processes("sleep", "770077") + host_processes("sleep", "770078"))
        self.assertEqual(self.client.get(made["id"])["cause"], "deleted")
        self.refused("not_found", "DELETE", f"/v1/sandboxes/{made['id']}")
        self.assertIn("deleted", self.refused("bad_state", "POST", f"/v1/sandboxes/{made['id']}/exec", {"command": "true"})["message"])
        self.assertNotEqual(self.client.create(name="again")["id"], made["id"])

    def test_unknown_things_are_named(self):
        self.assertEqual(self.refused("not_found", "POST", "/v1/sandboxes", {"image": "nothing"})["field"], "image")
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "colour": 1})["field"], "colour")
        error = self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "limits": {"memory": 1}})
        self.assertEqual(error["field"], "limits.memory")
        error = self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "network": {"mode": "host"}})
        self.assertEqual(error["field"], "network.mode")
        self.refused("not_found", "GET", "/v1/sandboxes/nothing")
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "user": "nobody-at-all"})["field"], "user")

    def test_idle_ones_end_unless_they_are_heard_of(self):
        idle = self.client.create(timeouts={"idle_seconds": 2})["id"]
        kept = self.client.create(timeouts={"idle_seconds": 2})["id"]
        busy = self.client.create(timeouts={"idle_seconds": 2})["id"]
        client = self.daemon.client()
        client.connection.request("POST", f"/v1/sandboxes/{busy}/exec", '{"command": "sleep 4.5"}')

        def idle_ended():
            self.client.call("POST", f"/v1/sandboxes/{kept}/heartbeat")
            return self.client.get(idle)["state"] == "expired"

        wait_until(idle_ended, "the idle one ends")
        self.assertEqual(self.client.get(idle)["cause"], "idle_timeout")
        self.assertEqual(self.client.get(kept)["state"], "running")
        self.assertEqual(client.connection.getresponse().status, 200)  # a running command counts
        client.close()
        wait_until(lambda: self.client.get(kept)["state"] == "expired", "the other one ends as well")

    def test_a_lifetime_ends_all(self):
        made = self.client.create(timeouts={"lifetime_seconds": 1})
        self.assertIsNotNone(made["expires_at"])
        result = self.client.exec(made["id"], "sleep 770077")
        self.assertEqual(result["cause"], "sandbox_ended")
        wait_until(lambda: self.client.get(made["id"])["cause"] == "lifetime", "it ends")

    def test_never_means_never(self):
        made = self.client.create(timeouts={"lifetime_seconds": 0, "idle_seconds": 0})
        self.assertEqual((made["expires_at"], made["idle_expires_at"]), (None, None))

    def test_an_agent_that_dies_is_noticed(self):
        made = self.client.create()
        os.kill(made["pid"], signal.SIGKILL)
        wait_until(lambda: self.client.get(made["id"])["state"] == "failed", "it is noticed")
        self.assertEqual(self.client.get(made["id"])["cause"], "agent_died")
        wait_until(lambda: not [g for g in self.daemon.groups() if made["id"] in g], "it is removed")

    def test_users_of_the_image(self):
        sandbox = self.sandbox(user="root")
        self.assertEqual(self.client.output(sandbox, "id -u; id -g; echo $HOME").split(), ["0", "0", "/root"])
        sandbox = self.sandbox(user="4242:4243")
        self.assertEqual(self.client.output(sandbox, "id -u; id -g; touch /workspace/mine && echo ok").split(), ["4242", "4243", "ok"])

    def test_images(self):
        images = self.client.call("GET", "/v1/images")["images"]
        self.assertEqual([i["references"] for i in images], [["busybox:latest"]])
        image = self.client.call("GET", "/v1/images/busybox:latest")
        self.assertEqual(self.client.call("GET", "/v1/images/" + image["id"][len("sha256:"):][:12])["id"], image["id"])
        sandbox = self.sandbox()
        self.refused("bad_state", "DELETE", "/v1/images/busybox:latest")
        self.client.delete(sandbox)
        removed = self.client.call("DELETE", "/v1/images/busybox:latest")["removed"]
        self.assertEqual(removed["references"], ["busybox:latest"])
        self.refused("not_found", "POST", "/v1/sandboxes", {"image": "busybox"})
        self.refused("not_found", "POST", "/v1/images/import", {"path": "/no/such/file"})
        status, headers, body = self.client.raw("POST", "/v1/images/import", {"path": str(self.daemon.dir / "busybox"), "reference": "busybox:latest"},
                                                {"Accept": "text/event-stream"})
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"))
        events = [line for line in body.decode().splitlines() if line.startswith("event: ")]
        self.assertEqual(events[-1], "event: result")
        self.assertIn("event: progress", events)

    def test_info_tells_what_is(self):
        sandbox = self.sandbox()
        info = self.client.call("GET", "/v1/info")
        self.assertEqual(info["counts"]["running"], 1)
        self.assertEqual(info["cgroup"]["parent"], self.daemon.parent)
        self.assertEqual(info["quarantined"], [])
        self.assertEqual(info["pools"]["enabled"], True)
        wait_until(lambda: self.client.call("GET", "/v1/info")["pools"]["blanks_ready"] > 0, "blanks are made")
        time.sleep(0.1)
        self.assertTrue(self.client.create()["from_pool"])
        self.client.delete(sandbox)


class WithoutPools(DaemonCase):
    options = ("--pools=off",)

    def test_everything_on_demand(self):
        made = self.client.create()
        self.assertFalse(made["from_pool"])
        self.assertEqual(self.client.output(made["id"], "echo made"), "made\n")
        self.client.delete(made["id"])
        self.assertEqual(self.client.call("GET", "/v1/info")["pools"]["blanks_ready"], 0)


if __name__ == "__main__":
    unittest.main()
