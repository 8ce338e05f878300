"""Some rounds of tools/crash-test: hutchd is killed at named places and at random times, and nothing may be lost or left."""
import os
import random
import shutil
import sys
import time
import unittest

import crash

ROUNDS = 40
ENOUGH = 60  # seconds after which no round begins: in a virtual machine fewer must do
SEED = 7
OWN_NETWORK = "HUTCH_CRASH_NETWORK"


class Crashes(unittest.TestCase):
    def test_what_was_acknowledged_is_true_and_nothing_is_left(self):
        harness = crash.Harness(seed=SEED, clients=2, seconds=0.6)
        points = crash.fault_points()
        random.Random(SEED).shuffle(points)
        # First what takes longest to try by chance, then as many of the others as there is time for.
        points = [*crash.TAKEOVER, *["random"] * 5, *(point for point in points if point not in crash.TAKEOVER)][:ROUNDS]
        whole = False
        try:
            harness.begin()
            harness.daemon.kill()
            enough = time.monotonic() + ENOUGH
            for point in points:
                if time.monotonic() < enough:
                    harness.round(point)
            harness.sweep()
            whole = True
        finally:
            log = harness.daemon.log.read_text(errors="replace")
            harness.close()
            shutil.rmtree(harness.daemon.dir, ignore_errors=True)
            if not whole:
                print(log[-20000:], file=sys.stderr)
        self.assertGreater(sum(harness.hits.values()), harness.rounds // 2, f"of {harness.tried} only {harness.hits} were reached")


if __name__ == "__main__":
    if os.environ.get(OWN_NETWORK) != "own":  # links that are left can be told from others'
        words = ["unshare", "--net", "--", "/bin/sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvpe(words[0], words, {**os.environ, OWN_NETWORK: "own"})
    unittest.main()
