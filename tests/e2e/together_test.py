"""What each feature of a sandbox's life does is tested for itself; here is what they do together."""
import unittest

from client import ApiError
from daemon import OwnDaemonCase, wait_until

MIB = 1 << 20
VOLUME = {"name": "shared", "target": "/data"}


class Together(OwnDaemonCase):
    def call(self, method, path, body=None):
        return self.client.call(method, path, body)

    def stop(self, box):
        return self.call("POST", f"/v1/sandboxes/{box}/stop", {"timeout_seconds": 1})

    def start(self, box):
        return self.call("POST", f"/v1/sandboxes/{box}/start")

    def fork(self, box, **fields):
        return [one["id"] for one in self.call("POST", f"/v1/sandboxes/{box}/fork", fields)["sandboxes"]]

    def write(self, box, path, text):
        self.client.output(box, f"echo {text} >> {path}")

    def read(self, box, path):
        return self.client.output(box, f"cat {path}").split()

    def kill(self):
        self.daemon.kill()
        self.restart()

    def test_forks_share_volumes_and_nothing_else(self):
        box = self.client.create(volumes=[{**VOLUME, "size_bytes": 32 * MIB}])["id"]
        self.write(box, "/workspace/own", "first")
        self.write(box, "/data/all", "first")
        forks = self.fork(box, count=2)
        for number, fork in enumerate(forks):
            self.write(fork, "/workspace/own", f"fork{number}")
            self.write(fork, "/data/all", f"fork{number}")
        self.assertEqual(self.read(box, "/workspace/own"), ["first"])
        self.assertEqual(self.read(forks[1], "/workspace/own"), ["first", "fork1"])
        self.assertEqual(self.read(box, "/data/all"), ["first", "fork0", "fork1"])
        self.assertEqual(sorted(use["id"] for use in self.call("GET", "/v1/volumes/shared")["sandboxes"]), sorted([box, *forks]))

    def test_a_fork_stops_and_starts_with_all_it_has(self):
        box = self.client.create(volumes=[{**VOLUME, "size_bytes": 32 * MIB}])["id"]
        self.write(box, "/workspace/own", "first")
        (fork,) = self.fork(box, name="copy")
        self.client.delete(box)
        self.write(fork, "/workspace/own", "second")
        self.write(fork, "/data/all", "second")
        self.stop(fork)
        with self.assertRaises(ApiError) as refused:
            self.call("DELETE", "/v1/volumes/shared")
        self.assertIn(fork, str(refused.exception))
        self.kill()
        self.assertEqual(self.client.get(fork)["state"], "stopped")
        self.assertEqual(self.start("copy-1")["id"], fork)
        self.assertEqual(self.read(fork, "/workspace/own"), ["first", "second"])
        self.assertEqual(self.read(fork, "/data/all"), ["second"])
        self.write(fork, "/workspace/own", "third")
        # Once more, and a fork of what was stopped.
        self.stop(fork)
        self.start(fork)
        (grandchild,) = self.fork(fork)
        self.assertEqual(self.read(grandchild, "/workspace/own"), ["first", "second", "third"])
        self.client.delete(fork)
        self.client.delete(grandchild)
        wait_until(lambda: len(self.call("GET", "/v1/images")["images"]) == 1, "images of forks are gone")
        self.call("DELETE", "/v1/volumes/shared")

    def test_one_from_a_pool_is_like_any_other(self):
        self.call("POST", "/v1/volumes", {"name": "shared", "size_bytes": 32 * MIB})
        self.call("PUT", "/v1/pools/ahead", {"image": "busybox", "ready": 1, "request": {"volumes": [VOLUME]}})
        wait_until(lambda: self.call("GET", "/v1/pools/ahead")["counts"]["ready"] == 1, "one is ready")
        with self.assertRaises(ApiError):  # one that waits uses it, too
            self.call("DELETE", "/v1/volumes/shared")
        self.kill()
        wait_until(lambda: self.call("GET", "/v1/pools/ahead")["counts"]["ready"] == 1, "it waits still")
        box = self.client.create(volumes=[VOLUME], session_key="mine")
        self.assertEqual(box["pool"], "ahead")
        self.write(box["id"], "/workspace/own", "first")
        self.write(box["id"], "/data/all", "first")
        self.call("DELETE", "/v1/pools/ahead")
        self.stop(box["id"])
        again = self.client.create(volumes=[VOLUME], session_key="mine")
        self.assertEqual((again["id"], again["state"]), (box["id"], "running"))
        (fork,) = self.fork(box["id"])
        self.assertEqual(self.read(fork, "/workspace/own"), ["first"])
        self.assertEqual(self.read(fork, "/data/all"), ["first"])
        self.assertIsNone(self.client.get(fork)["pool"])

    def test_a_volume_that_is_gone_is_told_at_the_start(self):
        self.call("POST", "/v1/volumes", {"name": "shared", "size_bytes": 32 * MIB})
        box = self.client.create(volumes=[VOLUME])["id"]
        self.stop(box)
        self.daemon.stop()
        (self.daemon.dir / "state/volumes/shared").rename(self.daemon.dir / "away")
        self.restart()
        with self.assertRaises(ApiError) as refused:
            self.start(box)
        self.assertEqual(refused.exception.code, "not_found")
        self.daemon.stop()
        (self.daemon.dir / "away").rename(self.daemon.dir / "state/volumes/shared")
        self.restart()
        self.start(box)
        self.assertEqual(self.client.get(box)["state"], "running")

    def test_paused_and_sealed_and_stopped(self):
        box = self.client.create()["id"]
        self.write(box, "/workspace/own", "first")
        self.call("POST", f"/v1/sandboxes/{box}/pause", {})
        self.call("POST", f"/v1/sandboxes/{box}/snapshot", {"reference": "kept:one"})
        self.assertEqual(self.client.get(box)["state"], "paused")
        self.stop(box)
        self.start(box)
        self.assertEqual(self.read(box, "/workspace/own"), ["first"])
        other = self.client.create(image="kept:one")["id"]
        self.assertEqual(self.read(other, "/workspace/own"), ["first"])
        changes = self.call("GET", f"/v1/sandboxes/{other}/diff")["changes"]
        self.assertEqual([change["path"] for change in changes], [])


if __name__ == "__main__":
    unittest.main()
