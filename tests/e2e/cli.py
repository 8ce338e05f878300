"""hutch, the program, against a daemon of the test's own."""
import json
import os
import subprocess

from daemon import DaemonCase

HUTCH = os.environ.get("HUTCH", "hutch")
PATIENCE = int(os.environ.get("PATIENCE", "60"))  # seconds


class CliCase(DaemonCase):
    def environment(self):
        return {**os.environ, "HUTCH_SOCKET": self.daemon.socket, "NO_COLOR": "1"}

    def hutch(self, *words, stdin=b""):
        return subprocess.run([HUTCH, *words], input=stdin, capture_output=True, env=self.environment(), timeout=PATIENCE, check=False)

    def text(self, *words, **more):
        """Standard output of a hutch that must succeed."""
        done = self.hutch(*words, **more)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def start(self, *words, **more):
        process = subprocess.Popen([HUTCH, *words], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def processes(self, box):
        return json.loads(self.text("ps", box, "--json"))["processes"]
