"""Many at once, and many one after another: nothing mixes, nothing grows."""
import os
import threading
import time
import unittest

from daemon import ENDS, DaemonCase, wait_until

ROUNDS = int(os.environ.get("HUTCH_LEAK_ROUNDS", "50"))
CLIENTS = 8


class Load(DaemonCase):
    def test_many_clients_at_once(self):
        failures = []

        def run(name):
            client = self.daemon.client()
            try:
                for turn in range(5):
                    sandbox = client.create(env={"WHO": f"{name}-{turn}"})["id"]
                    output = client.output(sandbox, "echo $WHO; hostname")
                    assert output == f"{name}-{turn}\n{sandbox}\n", output
                    client.delete(sandbox)
            except Exception as error:  # pylint: disable=broad-except
                failures.append(repr(error))
            client.close()

        threads = [threading.Thread(target=run, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertFalse([s for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"] if s["state"] not in ENDS])

    def settled_fds(self):
        """Descriptors once the pool is full again."""
        def full():
            pools = self.client.call("GET", "/v1/info")["pools"]
            return pools["blanks_ready"] == pools["blanks_wanted"]
        wait_until(full, "the pool is full")
        return self.daemon.fds()

    def turn(self):
        sandbox = self.client.create()["id"]
        self.assertEqual(self.client.output(sandbox, "echo hello", stdin="x"), "hello\n")
        self.client.exec(sandbox, "sleep 1000 & exit 1")
        self.client.delete(sandbox)

    def test_nothing_leaks(self):
        for _ in range(10):
            self.turn()
        fds, rss, begin = self.settled_fds(), self.daemon.rss_kib(), time.monotonic()
        for _ in range(ROUNDS):
            self.turn()
        took = time.monotonic() - begin
        grown = self.daemon.rss_kib() - rss
        print(f"\n{ROUNDS} rounds in {took:.1f} s; resident memory {rss} KiB, grown by {grown} KiB")
        wait_until(lambda: self.settled_fds() <= fds + 2, f"no more than {fds} descriptors")
        self.assertLess(grown, 2048 + ROUNDS * 8)  # ended sandboxes stay listed for a while
        wait_until(lambda: len({g.rsplit("/", 1)[1] for g in self.daemon.groups()}) <= self.client.call("GET", "/v1/info")["pools"]["blanks_wanted"],
                   "only blanks have cgroups")


if __name__ == "__main__":
    unittest.main()
