"""A hutchd that follows another: no connection is refused, no answer is lost; systemd's store of descriptors; an orderly end."""
import array
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest

from client import ApiError, Client
from daemon import HUTCHD, Daemon, OwnDaemonCase, host_processes, wait_until


def number(offset):
    return str(500000 + os.getpid() * 20 + offset)


class Asking(threading.Thread):
    """Asks again and again, each time by a connection of its own; what goes wrong is kept."""

    def __init__(self, path, request=("GET", "/v1/health")):
        super().__init__(daemon=True)
        self.path, self.request = path, request
        self.answers, self.errors, self.stop = 0, [], threading.Event()

    def run(self):
        while not self.stop.is_set():
            client = Client(self.path)
            try:
                client.call(*self.request)
                self.answers += 1
            except (OSError, http.client.HTTPException, ApiError) as error:
                self.errors.append(repr(error))
            finally:
                client.close()

    def finish(self):
        self.stop.set()
        self.join()


class Listener(threading.Thread):
    """Stands for systemd: gets what sd_notify(3) sends, descriptors included."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.messages, self.store = [], {}
        self.start()

    def run(self):
        while True:
            data, ancillary, _, _ = self.socket.recvmsg(4096, 4096)
            if not data:
                return
            words = dict(line.split("=", 1) for line in data.decode().splitlines())
            fds = array.array("i")
            for _, _, payload in ancillary:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
            if words.get("FDSTORE") == "1":
                self.store[words["FDNAME"]] = fds[0]
            if words.get("FDSTOREREMOVE") == "1":
                os.close(self.store.pop(words["FDNAME"]))
            self.messages.append(data.decode())

    def end(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.socket.getsockname())
        self.join()
        self.socket.close()
        for fd in self.store.values():
            os.close(fd)


class TakeoverCase(OwnDaemonCase):
    def begin_exec(self, sandbox, command):
        """Sends an exec and does not wait for its answer."""
        body = json.dumps({"command": command}).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(connection.close)
        connection.connect(self.daemon.socket)
        connection.sendall(b"POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (sandbox.encode(), len(body), body))
        return connection

    @staticmethod
    def answer(connection):
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
        return json.loads(reply.split(b"\r\n\r\n", 1)[1])

    def launch(self, *options, **more):
        with open(self.daemon.log, "ab") as log:
            process = subprocess.Popen([*self.daemon.command(), *options], stderr=log, stdin=subprocess.DEVNULL, **more)
        self.started(process)
        return process

    def started(self, process):
        """Ended with the test, unless it is the daemon by then, whose end is looked at."""
        self.addCleanup(lambda: process is self.daemon.process or process.poll() is not None or process.kill())

    def take_over(self, *options):
        old = self.daemon.process
        new = self.launch("--takeover", *options)
        self.assertEqual(old.wait(60), 0)
        self.daemon.process = new
        with contextlib.closing(self.daemon.client()) as client:
            self.assertEqual(client.call("GET", "/v1/health"), {"status": "ok"})
        self.assertIsNone(new.poll())


class ActivatedCase(TakeoverCase):
    def activated(self, fds, names, notify=None):
        """A hutchd that gets descriptors as systemd passes them."""
        environment = {"LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": names, **({"NOTIFY_SOCKET": notify} if notify else {})}
        moves = "".join(f"os.dup2({fd}, {200 + i});" for i, fd in enumerate(fds)) + "".join(f"os.dup2({200 + i}, {3 + i});" for i in range(len(fds)))
        program = f"import os, sys; {moves} os.environ['LISTEN_PID'] = str(os.getpid()); os.closerange({3 + len(fds)}, 300); os.execv(sys.argv[1], sys.argv[1:])"
        command = self.daemon.command()
        with open(self.daemon.log, "ab") as log:
            process = subprocess.Popen(["/usr/bin/python3", "-c", program, *command], stderr=log, stdin=subprocess.DEVNULL, pass_fds=fds,
                                       env={**os.environ, **environment})
        self.started(process)
        return process


class Takeover(ActivatedCase):
    def test_no_connection_is_refused_and_no_answer_lost(self):
        box = self.client.create(env={"A": "1"}, timeouts={"idle_seconds": 0})
        port = self.client.call("POST", f"/v1/sandboxes/{box['id']}/ports", {"port": 3000})["host_port"]
        process = self.client.call("POST", f"/v1/sandboxes/{box['id']}/processes", {"command": "for i in $(seq 30); do echo $i; sleep 0.1; done; exit 9"})["id"]
        self.client.close()
        askers = [Asking(self.daemon.socket), Asking(self.daemon.socket, ("POST", f"/v1/sandboxes/{box['id']}/exec", {"command": "true"}))]
        refused, stop = [], threading.Event()

        def connect():
            while not stop.is_set():
                try:
                    socket.create_connection(("127.0.0.1", port), 60).close()
                except ConnectionResetError:
                    pass  # nobody listens inside
                except OSError as error:
                    refused.append(repr(error))

        knocker = threading.Thread(target=connect)
        for thread in (*askers, knocker):
            thread.start()
        for _ in range(3):
            self.take_over()
            before = [asker.answers for asker in askers]
            wait_until(lambda before=before: all(asker.answers > count + 3 for asker, count in zip(askers, before)), "clients are answered")
        stop.set()
        knocker.join()
        for asker in askers:
            asker.finish()
        self.assertEqual([asker.errors for asker in askers] + refused, [[], []])
        self.client = self.daemon.client()
        self.assertEqual(self.client.get(box["id"])["state"], "running")
        self.assertEqual([p["host_port"] for p in self.client.call("GET", f"/v1/sandboxes/{box['id']}/ports")["ports"]], [port])
        ended = self.client.call("GET", f"/v1/sandboxes/{box['id']}/processes/{process}?wait_seconds=60")
        self.assertEqual((ended["exit_code"], ended["stdout_bytes"]), (9, sum(len(str(i)) + 1 for i in range(1, 31))))

    def test_a_command_under_way_is_answered_and_others_wait(self):
        self.client.create(name="box")
        connection = self.begin_exec("box", f"sleep {number(1)} & sleep 2; kill $!; echo done")
        wait_until(lambda: host_processes("sleep", number(1)), "the command runs")
        self.client.close()
        old = self.daemon.process
        new = self.launch("--takeover")
        wait_until(lambda: "a successor takes over" in self.daemon.log.read_text(), "it is asked for its place")
        waiting = self.begin_exec("box", "echo second")
        result = self.answer(connection)
        self.assertEqual((result["exit_code"], result["stdout"]), (0, "done\n"))
        self.assertEqual(old.wait(60), 0)
        self.daemon.process = new
        waiting.shutdown(socket.SHUT_WR)
        self.assertEqual(self.answer(waiting)["stdout"], "second\n")
        self.client = self.daemon.client()

    def test_a_successor_that_fails_leaves_the_old_one_in_place(self):
        self.client.create(name="box")
        wrong = subprocess.run([*self.daemon.command(), "--takeover", "--socket", str(self.daemon.dir / "other")], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("a takeover cannot move the socket", wrong.stderr)
        self.assertEqual(self.client.output("box", "echo still"), "still\n")
        # One that dies while the old one drains.
        connection = self.begin_exec("box", f"sleep {number(2)} & sleep 3; kill $!; echo done")
        wait_until(lambda: host_processes("sleep", number(2)), "the command runs")
        new = self.launch("--takeover")
        wait_until(lambda: "a successor takes over" in self.daemon.log.read_text(), "it is asked for its place")
        new.kill()
        new.wait()
        wait_until(lambda: "this hutchd goes on" in self.daemon.log.read_text(), "it goes on")
        self.client.close()
        self.client = self.daemon.client()
        self.assertEqual(self.client.output("box", "echo again"), "again\n")
        self.assertEqual(self.answer_of_kept(connection)["stdout"], "done\n")
        self.take_over()  # and can be followed
        self.client.close()
        self.client = self.daemon.client()

    @staticmethod
    def answer_of_kept(connection):
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        return json.loads(reply.read())

    def test_only_root_is_handed_anything(self):
        path = self.daemon.dir / "run" / "takeover.sock"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(path.stat().st_uid, 0)
        os.chmod(self.daemon.dir, 0o711)  # the mode of the socket alone must not be what keeps others out
        path.chmod(0o666)
        program = ("import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); "
                   "s.send(b'hutchd takeover 1'); print(len(s.recv(100)))")
        done = subprocess.run(["/usr/bin/python3", "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False)
        self.assertTrue(done.stdout == "0\n" or "BrokenPipe" in done.stderr or "ConnectionReset" in done.stderr, done)
        self.assertEqual(self.client.call("GET", "/v1/health"), {"status": "ok"})

    def test_without_one_that_runs_there_is_nothing_to_take(self):
        self.daemon.kill()
        done = subprocess.run([*self.daemon.command(), "--takeover"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("start it without --takeover", done.stderr)
        self.restart()

    def test_what_the_socket_unit_passed_stays_its(self):
        """The successor of a hutchd whose socket is systemd's does not remove the file either."""
        self.daemon.stop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(self.daemon.socket)
            listening.listen(16)
            self.daemon.process = self.activated([listening.fileno()], "hutchd.socket")
            self.client.close()
            self.client = self.daemon.client()
            self.client.call("GET", "/v1/health")
            self.client.close()
            self.take_over()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertTrue(os.path.exists(self.daemon.socket))
        self.restart()


class Store(ActivatedCase):
    """systemd's store of descriptors, played by a datagram socket."""

    def setUp(self):
        super().setUp()
        self.client.close()
        self.daemon.stop()
        self.notify = str(self.daemon.dir / "notify")
        self.systemd = Listener(self.notify)
        self.addCleanup(self.systemd.end)
        self.daemon.process = self.launch(env={**os.environ, "NOTIFY_SOCKET": self.notify})
        wait_until(self.daemon.answers, "hutchd answers")
        self.client = self.daemon.client()

    def again(self, signal_number):
        """Ends it and starts it with what is in the store, as `systemctl restart` does."""
        self.client.close()
        self.daemon.process.send_signal(signal_number)
        self.daemon.process.wait(60)
        names = sorted(self.systemd.store)
        self.daemon.process = self.activated([self.systemd.store[name] for name in names], ":".join(names), self.notify)

    def test_a_restart_refuses_no_connection(self):
        box = self.client.create(timeouts={"idle_seconds": 0})["id"]
        port = self.client.call("POST", f"/v1/sandboxes/{box}/ports", {"port": 3000})["host_port"]
        wait_until(lambda: len(self.systemd.store) == 2, f"both sockets are stored: {self.systemd.messages}")
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            asker = Asking(self.daemon.socket)
            self.client.close()
            self.daemon.process.send_signal(signal_number)
            self.daemon.process.wait(60)
            asker.start()  # while nobody is there
            socket.create_connection(("127.0.0.1", port), 60).close()
            time.sleep(0.05)
            names = sorted(self.systemd.store)
            self.daemon.process = self.activated([self.systemd.store[name] for name in names], ":".join(names), self.notify)
            wait_until(lambda asker=asker: asker.answers > 3 or asker.errors, "it is answered")
            asker.finish()
            self.assertEqual(asker.errors, [])
            self.client = self.daemon.client()
            self.assertEqual([p["host_port"] for p in self.client.call("GET", f"/v1/sandboxes/{box}/ports")["ports"]], [port])

    def test_what_is_listened_on_no_more_leaves_the_store(self):
        box = self.client.create()["id"]
        for inside in (3000, 3001):
            self.client.call("POST", f"/v1/sandboxes/{box}/ports", {"port": inside})
        wait_until(lambda: len(self.systemd.store) == 3, "they are stored")
        self.client.call("DELETE", f"/v1/sandboxes/{box}/ports/3000")
        wait_until(lambda: len(self.systemd.store) == 2, "one is not")
        self.client.delete(box)
        wait_until(lambda: len(self.systemd.store) == 1, "the sandbox's is gone, too")

    def test_what_nobody_knows_is_closed(self):
        strangers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)]
        address = strangers[0].getsockname()
        for i, stranger in enumerate(strangers):
            self.systemd.store[f"hutch-stranger-{i}"] = os.dup(stranger.fileno())
            stranger.close()
        self.again(signal.SIGTERM)
        with contextlib.closing(self.daemon.client()) as client:
            client.call("GET", "/v1/health")
        wait_until(lambda: not [name for name in self.systemd.store if "stranger" in name], "they leave the store")
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address, 60)
        self.client = self.daemon.client()

    def test_systemd_is_told_who_follows(self):
        self.client.close()
        self.take_over()
        wait_until(lambda: f"MAINPID={self.daemon.process.pid}" in self.systemd.messages, f"it is told: {self.systemd.messages}")
        wait_until(lambda: self.systemd.messages[-1] != "READY=1" or self.systemd.messages.count("READY=1") == 2, "the new one is ready")
        self.client = self.daemon.client()


class OrderlyEnd(TakeoverCase):
    def test_a_command_of_two_seconds_is_answered_when_sigterm_comes(self):
        self.client.create(name="box")
        connection = self.begin_exec("box", f"sleep {number(3)} & sleep 2; kill $!; echo done")
        wait_until(lambda: host_processes("sleep", number(3)), "the command runs")
        self.assertEqual(self.daemon.stop(), 0)
        result = self.answer(connection)
        self.assertEqual((result["exit_code"], result["stdout"], result["cause"]), (0, "done\n", "exited"))
        self.restart()


class Faults(unittest.TestCase):
    def test_without_the_variable_no_place_does_anything(self):
        names = subprocess.run([HUTCHD, "--list-fault-points"], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertGreater(len(names), 50)
        self.assertEqual(len(names), len(set(names)))
        daemon = Daemon().start()  # its self-test passes by every step of a sandbox
        self.addCleanup(daemon.close)
        self.assertNotIn("HUTCH_FAULT", pathlib.Path(f"/proc/{daemon.process.pid}/environ").read_text())

    def test_a_place_ends_it_by_sigkill_and_no_child_inherits_it(self):
        daemon = Daemon()
        for fault, reached in (("before create cgroups", True), ("before create cgroups#1000", False), ("no such place", False)):
            os.environ["HUTCH_FAULT"] = fault
            self.addCleanup(os.environ.pop, "HUTCH_FAULT", None)
            if reached:
                with self.assertRaisesRegex(AssertionError, "hutchd ended with -9"):
                    daemon.start()
                continue
            daemon.start()
            children = pathlib.Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
            self.assertTrue(children)
            for child in children:
                self.assertNotIn("HUTCH_FAULT", pathlib.Path(f"/proc/{child}/environ").read_text())
            daemon.kill()
        os.environ.pop("HUTCH_FAULT")
        daemon.start().close()


if __name__ == "__main__":
    unittest.main()
