"""Servers inside, reached from the host: forwards and the API's path, also those on 127.0.0.1 or ::1 only."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import inside
from cli import CliCase
from client import UnixConnection
from daemon import Daemon, DaemonCase, wait_until
from websocket import BINARY, CLOSE, TEXT, WebSocket

MIB = 1 << 20
CHROMIUM = shutil.which("chromium")


def threads_and_fds(daemon):
    return daemon.fds()


def ask(port, text, address="127.0.0.1", timeout=60):
    """All that comes back for these bytes, to the end of the connection."""
    with socket.create_connection((address, port), timeout) as connection:
        connection.sendall(text)
        whole = b""
        while piece := connection.recv(65536):
            whole += piece
        return whole


def get(path, host="localhost"):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PortsCase(DaemonCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        layout = inside.python_image(cls.daemon.dir)
        with contextlib.closing(cls.daemon.client()) as client:
            client.call("POST", "/v1/images/import", {"path": layout, "reference": "python:test"})

    def python(self, *programs, **fields):
        """A sandbox with servers in it: (program, arguments...) each."""
        sandbox = self.client.create(image="python:test", **fields)
        for program, *arguments in programs:
            inside.start(self.client, sandbox["id"], program, *arguments)
        return sandbox

    def ports(self, sandbox):
        return self.client.call("GET", f"/v1/sandboxes/{sandbox}/ports")

    def forward(self, sandbox, port=3000):
        return next(p for p in self.ports(sandbox)["ports"] if p["port"] == port)

    def add(self, sandbox, **fields):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/ports", fields)

    def settled(self, sandbox, port=3000):
        wait_until(lambda: self.forward(sandbox, port)["open_connections"] == 0, "no connection is left")
        return self.forward(sandbox, port)


class Forwards(PortsCase):
    def test_a_server_on_loopback_is_reached_and_counted(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        self.assertEqual([p["port"] for p in sandbox["ports"]], [3000])
        self.assertEqual(sandbox["ports"][0]["address"], "127.0.0.1")
        answer = ask(sandbox["ports"][0]["host_port"], get("/x"))
        self.assertTrue(answer.endswith(b"you asked for /x"), answer)
        seen = self.settled(sandbox["id"])
        self.assertEqual((seen["connections"], seen["sent_bytes"], seen["received_bytes"]), (1, len(get("/x")), len(answer)))
        self.assertTrue(seen["listening"])
        self.assertEqual(seen["url"], f"http://127.0.0.1:{seen['host_port']}/")

    def test_a_server_on_ipv6_loopback_alone_is_reached(self):
        sandbox = self.python((inside.SERVER, "::1", 3000), ports=[{"port": 3000, "address": "127.0.0.1"}])
        self.assertIn(b"you asked", ask(sandbox["ports"][0]["host_port"], get("/x")))
        listening = self.ports(sandbox["id"])["listening"]
        self.assertEqual(listening, [{"port": 3000, "address": "::1", "loopback_only": True}])
        status, _, body = self.client.raw("GET", f"/v1/sandboxes/{sandbox['id']}/proxy/3000/x")
        self.assertEqual((status, body), (200, b"you asked for /x"))

    def test_what_listens_on_every_address_is_told_so(self):
        sandbox = self.python((inside.SERVER, "0.0.0.0", 3000))
        self.assertEqual(self.ports(sandbox["id"]), {"ports": [], "listening": [{"port": 3000, "address": "*", "loopback_only": False}]})

    def test_where_nobody_listens_the_client_is_reset_at_once(self):
        sandbox = self.python(ports=[3000])
        with self.assertRaises(ConnectionResetError):
            ask(sandbox["ports"][0]["host_port"], get("/"))
        self.assertFalse(self.settled(sandbox["id"])["listening"])

    def test_a_half_closed_connection_goes_on_the_other_way(self):
        sandbox = self.python((inside.COUNTER, 3000), ports=[3000])
        for size in (0, 5, 3 * MIB):
            with self.subTest(size), socket.create_connection(("127.0.0.1", sandbox["ports"][0]["host_port"]), 60) as connection:
                connection.sendall(bytes(size))
                connection.shutdown(socket.SHUT_WR)
                self.assertEqual(connection.recv(100), b"%d bytes" % size)
                self.assertEqual(connection.recv(100), b"")

    def test_a_large_stream_takes_no_memory(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        before, count = self.daemon.rss_kib(), 256 * MIB
        with socket.create_connection(("127.0.0.1", sandbox["ports"][0]["host_port"]), 60) as connection:
            connection.sendall(get(f"/large?n={count}"))
            got = 0
            while piece := connection.recv(MIB):
                got += len(piece)
        self.assertGreater(got, count)
        self.assertEqual(self.settled(sandbox["id"])["received_bytes"], got)
        self.assertLess(self.daemon.rss_kib() - before, 8 * 1024)

    def test_a_client_that_does_not_read_holds_back_the_server(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        with socket.create_connection(("127.0.0.1", sandbox["ports"][0]["host_port"]), 60) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(get(f"/large?n={256 * MIB}"))
            connection.recv(100)
            last = [0]

            def stands_still():
                now = self.forward(sandbox["id"])["received_bytes"]
                same, last[0] = now == last[0], now
                time.sleep(0.2)
                return same
            wait_until(stands_still, "nothing more is moved")
            self.assertLess(last[0], 64 * MIB)
        self.settled(sandbox["id"])

    def test_connections_beyond_the_bound_wait(self):
        sandbox = self.python((inside.SILENT, 3000), ports=[3000])
        port, held = sandbox["ports"][0]["host_port"], []
        with contextlib.ExitStack() as stack:
            for _ in range(260):
                held.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)))
            wait_until(lambda: self.forward(sandbox["id"])["open_connections"] == 256, "256 are open")
            time.sleep(0.2)
            self.assertEqual(self.forward(sandbox["id"])["connections"], 256)
            for connection in held[:10]:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
            wait_until(lambda: self.forward(sandbox["id"])["connections"] == 260, "the others get in")

    def test_a_destroyed_sandbox_resets_its_connections_and_frees_the_port(self):
        sandbox = self.python((inside.SILENT, 3000), ports=[3000])
        port = sandbox["ports"][0]["host_port"]
        fds = None
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(b"x")
            wait_until(lambda: self.forward(sandbox["id"])["sent_bytes"] == 1, "the byte is in")
            self.client.delete(sandbox["id"])
            with self.assertRaises(ConnectionResetError):
                connection.recv(1)
        wait_until(lambda: self.refuses(port), "nobody listens on the host any more")
        self.assertIsNone(fds)

    @staticmethod
    def refuses(port):
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return True
        return False

    def test_nothing_leaks(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        ask(sandbox["ports"][0]["host_port"], get("/x"))
        self.settled(sandbox["id"])
        before = self.daemon.fds()
        for _ in range(50):
            ask(sandbox["ports"][0]["host_port"], get("/x"))
            self.client.raw("GET", f"/v1/sandboxes/{sandbox['id']}/proxy/3000/x")
            with socket.create_connection(("127.0.0.1", sandbox["ports"][0]["host_port"])) as connection:
                connection.sendall(get(f"/large?n={256 * MIB}"))
        self.settled(sandbox["id"])
        wait_until(lambda: self.daemon.fds() <= before + 1, "every descriptor is closed")

    def test_a_taken_host_port_is_told_with_who_has_it(self):
        one, other = self.python(ports=[3000]), self.python()
        port = one["ports"][0]["host_port"]
        error = self.refused("exists", "POST", f"/v1/sandboxes/{other['id']}/ports", {"port": 4000, "host_port": port})
        self.assertEqual(error["field"], "host_port")
        self.assertIn(f"127.0.0.1:{port}", error["message"])
        self.assertIn(one["id"], error["message"])
        error = self.refused("exists", "POST", "/v1/sandboxes", {"image": "busybox", "ports": [4000, {"port": 3000, "host_port": port}]})
        self.assertEqual(error["field"], "ports[1].host_port")
        self.assertEqual(len(self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]), 2)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            error = self.refused("exists", "POST", f"/v1/sandboxes/{other['id']}/ports",
                                 {"port": 4000, "host_port": taken.getsockname()[1]})
            self.assertIn("another program", error["message"])

    def test_ports_are_added_and_removed(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000))["id"]
        wanted = free_port()
        made = self.add(sandbox, port=3000, host_port=wanted, label="web")
        self.assertEqual((made["host_port"], made["label"], made["listening"]), (wanted, "web", True))
        self.assertIn(b"you asked", ask(wanted, get("/x")))
        self.refused("exists", "POST", f"/v1/sandboxes/{sandbox}/ports", {"port": 3000})
        self.assertEqual(self.client.get(sandbox)["ports"], [{"port": 3000, "host_port": wanted, "address": "127.0.0.1", "label": "web"}])
        self.client.call("DELETE", f"/v1/sandboxes/{sandbox}/ports/3000")
        self.assertTrue(self.refuses(wanted))
        self.refused("not_found", "DELETE", f"/v1/sandboxes/{sandbox}/ports/3000")
        self.assertEqual(self.client.get(sandbox)["ports"], [])
        self.add(sandbox, port=3000, host_port=wanted)
        self.assertIn(b"you asked", ask(wanted, get("/x")))

    def test_wrong_ports_are_refused_by_field(self):
        sandbox = self.python()["id"]
        for body, code, field in (({"port": 0}, "invalid_argument", "port"), ({"port": 70000}, "invalid_argument", "port"),
                                  ({"port": 53}, "invalid_argument", "port"), ({"port": 3128}, "invalid_argument", "port"),
                                  ({"port": 3000, "host_port": 80}, "invalid_argument", "host_port"),
                                  ({"port": 3000, "address": "0.0.0.0"}, "forbidden", "address"),
                                  ({"port": 3000, "address": "::"}, "forbidden", "address"),
                                  ({"port": 3000, "address": "192.0.2.7"}, "forbidden", "address"),
                                  ({"port": 3000, "address": "localhost"}, "invalid_argument", "address"),
                                  ({"port": 3000, "address": "fe80::1%lo"}, "invalid_argument", "address"),
                                  ({"port": 3000, "to": 1}, "invalid_argument", "to")):
            with self.subTest(body):
                self.assertEqual(self.refused(code, "POST", f"/v1/sandboxes/{sandbox}/ports", body)["field"], field)
        for ports, field in (([3000, 3000], "ports[1]"), ("3000", "ports"), ([3129], "ports[0]"), (list(range(1000, 1065)), "ports")):
            with self.subTest(ports):
                error = self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "ports": ports})
                self.assertEqual(error["field"], field)

    def test_other_addresses_of_loopback_are_free(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000))["id"]
        made = self.add(sandbox, port=3000, address="127.9.9.9")
        self.assertIn(b"you asked", ask(made["host_port"], get("/x"), "127.9.9.9"))
        with self.assertRaises(ConnectionRefusedError):
            ask(made["host_port"], get("/x"))

    def test_a_used_port_keeps_an_idle_sandbox(self):
        # No command runs: what listens is this test's, in the sandbox's network.
        sandbox = self.client.create(ports=[3000], timeouts={"idle_seconds": 2})
        server = subprocess.Popen(["nsenter", f"--net=/proc/{sandbox['pid']}/ns/net", "/usr/bin/python3", "-c", inside.SILENT, "3000"],
                                  stdout=subprocess.PIPE)
        self.addCleanup(lambda: (server.kill(), server.communicate()))
        self.assertEqual(server.stdout.readline(), b"ready\n")
        with socket.create_connection(("127.0.0.1", sandbox["ports"][0]["host_port"]), 60) as connection:
            connection.sendall(b"x")
            time.sleep(5)
            self.assertEqual(self.client.get(sandbox["id"])["state"], "running")
        server.kill()
        wait_until(lambda: self.client.get(sandbox["id"])["state"] == "expired", "it ends when nobody uses it")


class Restart(PortsCase):
    def test_forwards_are_there_again_after_a_kill(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        added, removed = self.add(sandbox["id"], port=4000), self.add(sandbox["id"], port=5000)
        self.client.call("DELETE", f"/v1/sandboxes/{sandbox['id']}/ports/5000")
        port = sandbox["ports"][0]["host_port"]
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(b"GET ")
            wait_until(lambda: self.forward(sandbox["id"])["sent_bytes"] == 4, "it is inside")
            self.daemon.kill()
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(connection.recv(1), b"")
        self.assertTrue(Forwards.refuses(port))
        taken = socket.socket()
        taken.bind(("127.0.0.1", added["host_port"]))
        taken.listen()
        with taken:
            self.daemon.start()
            self.client.close()
            self.assertIn(b"you asked", ask(port, get("/x")))
            shown = {p["port"]: p for p in self.ports(sandbox["id"])["ports"]}
        self.assertEqual(sorted(shown), [3000, 4000])
        self.assertNotIn("error", shown[3000])
        self.assertIn("Address already in use", shown[4000]["error"])
        self.assertTrue(Forwards.refuses(removed["host_port"]))
        self.client.call("DELETE", f"/v1/sandboxes/{sandbox['id']}/ports/4000")
        self.assertEqual(self.add(sandbox["id"], port=4000, host_port=added["host_port"])["host_port"], added["host_port"])
        self.client.delete(sandbox["id"])
        wait_until(lambda: Forwards.refuses(port), "the port is free")


class Allowed(PortsCase):
    config = {"ports": {"addresses": ["0.0.0.0"]}}

    def test_an_address_of_the_operators_list_is_listened_on(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[{"port": 3000, "address": "0.0.0.0"}])
        made = self.forward(sandbox["id"])
        self.assertEqual((made["address"], made["url"]), ("0.0.0.0", f"http://127.0.0.1:{made['host_port']}/"))
        self.assertIn(b"you asked", ask(made["host_port"], get("/x"), "127.0.0.2"))


class Path(PortsCase):
    """/v1/sandboxes/{id}/proxy/{port}/..."""

    def setUp(self):
        super().setUp()
        self.box = self.python((inside.SERVER, "127.0.0.1", 3000))["id"]

    def target(self, path, port=3000):
        return f"/v1/sandboxes/{self.box}/proxy/{port}{path}"

    def raw(self, text):
        """Bytes to the daemon's socket, all that comes back."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(60)
            connection.connect(self.daemon.socket)
            connection.sendall(text)
            whole = b""
            while piece := connection.recv(65536):
                whole += piece
            return whole

    def test_the_request_is_the_clients_but_for_its_way(self):
        status, _, body = self.client.raw("GET", self.target("/head?a=b%20c&&%zz"), headers={
            "Host": "dev.example:81", "Accept": "x/y", "Cookie": "k=v", "Authorization": "Bearer ours", "X-Hutch-Who": "me",
            "Connection": "X-Private", "X-Private": "1", "X-Forwarded-Prefix": "/evil", "TE": "trailers", "Keep-Alive": "5"})
        lines = body.decode().splitlines()
        self.assertEqual((status, lines[0]), (200, "GET /head?a=b%20c&&%zz HTTP/1.1"))
        for line in ("Host: dev.example:81", "Accept: x/y", "Cookie: k=v", "X-Forwarded-Host: dev.example:81", "Connection: close",
                     f"X-Forwarded-Prefix: {self.target('')}", "X-Forwarded-Proto: http"):
            self.assertIn(line, lines)
        for name in ("authorization", "x-hutch", "x-private", "/evil", "te:", "keep-alive"):
            self.assertNotIn(name, body.decode().lower())

    def test_paths_and_methods_are_passed_on(self):
        for path in ("/a%2Fb//c/", "/", "/%C3%A9?x", "/a/../b"):
            status, _, body = self.client.raw("GET", self.target(path))
            self.assertEqual(status, 200)
            if path != "/":
                self.assertEqual(body.decode(), f"you asked for {path}")
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            status, _, body = self.client.raw(method, self.target("/x"), body=b"abc")
            self.assertEqual((status, body[:len(method) + 2].decode()), (200, f"{method} 3"))
        status, headers, body = self.client.raw("HEAD", self.target("/x"))
        self.assertEqual((status, headers["Content-Length"], body), (200, "16", b""))

    def test_without_a_path_one_is_sent_to_the_root(self):
        status, headers, _ = self.client.raw("GET", self.target("?a=1"))
        self.assertEqual((status, headers["Location"]), (308, self.target("/?a=1")))
        status, headers, _ = self.client.raw("GET", self.target("/redirect"))
        self.assertEqual((status, headers["Location"]), (302, self.target("/there")))

    def test_large_bodies_stream_both_ways_in_constant_memory(self):
        before, count = self.daemon.rss_kib(), 256 * MIB
        block = bytes(range(256)) * 4096
        wanted = hashlib.sha256()
        for _ in range(count // MIB):
            wanted.update(block)
        for headers in ({"Content-Length": str(count)}, {"Transfer-Encoding": "chunked"}):
            with self.subTest(headers), contextlib.closing(UnixConnection(self.daemon.socket, 120)) as connection:
                body = (block for _ in range(count // MIB))
                connection.request("PUT", self.target("/x"), body=body, headers=headers, encode_chunked="Content-Length" not in headers)
                self.assertEqual(connection.getresponse().read().decode(), f"PUT {count} {wanted.hexdigest()}")
        with contextlib.closing(UnixConnection(self.daemon.socket, 120)) as connection:
            connection.request("GET", self.target(f"/large?n={count}"))
            reply, got = connection.getresponse(), hashlib.sha256()
            while piece := reply.read(MIB):
                got.update(piece)
        self.assertEqual(got.hexdigest(), wanted.hexdigest())
        self.assertLess(self.daemon.rss_kib() - before, 8 * 1024)

    def test_events_arrive_as_they_are_sent(self):
        with contextlib.closing(UnixConnection(self.daemon.socket, 60)) as connection:
            connection.request("GET", self.target("/events"))
            reply = connection.getresponse()
            for i in range(3):
                self.assertEqual(reply.readline(), b"data: %d\n" % i)
                reply.readline()
                # Only now does the server go on.
                self.client.output(self.box, ["/bin/sh", "-c", f": > /tmp/event-{i}-read"])

    def test_interim_answers_and_old_servers(self):
        answer = self.raw(get(self.target("/early")))
        self.assertTrue(answer.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </style>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n"), answer)
        answer = self.raw(get(self.target("/old")))
        self.assertTrue(answer.endswith(b"\r\nConnection: close\r\n\r\nuntil the end"), answer)
        answer = self.raw(f"GET {self.target('/head')} HTTP/1.0\r\n\r\n".encode())
        self.assertIn(b"GET /head HTTP/1.0", answer)

    def test_a_websocket_goes_through(self):
        for kind, data in ((TEXT, b"hello"), (BINARY, bytes(60000))):
            socket_ = WebSocket(self.daemon.socket, self.target("/socket"))
            self.assertEqual(socket_.status, 101)
            socket_.send(kind, data)
            self.assertEqual(socket_.next(), (kind, data))
            socket_.send(CLOSE, b"\3\xe8")
            self.assertEqual(socket_.next()[0], CLOSE)
            with self.assertRaises(EOFError):
                socket_.next()
            socket_.socket.close()

    def test_answers_that_could_be_two_are_refused(self):
        two = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfirHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"
        answer = self.canned(two)
        self.assertTrue(answer.endswith(b"\r\n\r\nfir"), answer)
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nfir\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nsecond"
        answer = self.canned(chunked)
        self.assertTrue(answer.endswith(b"\r\n\r\n3\r\nfir\r\n0\r\n\r\n"), answer)
        self.assertIn(b"Connection: close\r\n", answer)

    def canned(self, answer, port=[4000]):
        port[0] += 1
        inside.start(self.client, self.box, inside.CANNED, port[0], base64.b64encode(answer).decode())
        return self.raw(get(self.target("/", port[0])))

    def test_hostile_answers_are_bad_gateways(self):
        for hostile, why in (
                (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "more than one Content-Length"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", "both"),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unknown Transfer-Encoding"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", "malformed Content-Length"),
                (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "malformed field"),
                (b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n", "malformed field name"),
                (b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n", "control characters"),
                (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "control characters"),
                (b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "unasked"),
                (b"HTTP/1.1 99 OK\r\n\r\n", "no status"), (b"HTTP/2 200\r\n\r\n", "not HTTP/1.x"), (b"SSH-2.0-x\r\n", "not HTTP/1.x"),
                (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n", "too many fields"),
                (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n", "too long"),
                (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "for ever"),
                (b"HTTP/1.1 200 OK\r\n", "closed the connection"), (b"", "closed the connection")):
            with self.subTest(why):
                answer = self.canned(hostile)
                self.assertIn(b"HTTP/1.1 502 Bad Gateway\r\n", answer)
                body = answer.split(b"\r\n\r\n")[-1]
                self.assertIn(why, json.loads(body)["error"]["message"])

    def test_where_nobody_listens_there_is_a_reason(self):
        status, _, body = self.client.raw("GET", self.target("/x", 4000))
        self.assertEqual((status, json.loads(body)["error"]["message"]), (502, "nobody listens on port 4000"))
        for port in (53, 3128, 3129, 0, 65536):
            status, _, body = self.client.raw("GET", self.target("/x", port))
            self.assertEqual((status, json.loads(body)["error"]["field"]), (400, "port"))

    def test_clients_that_leave_and_sandboxes_that_end_leave_nothing(self):
        before = self.daemon.fds()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.daemon.socket)
            connection.sendall(get(self.target("/slow")))
            wait_until(lambda: self.daemon.fds() > before + 1, "it is passed on")
        wait_until(lambda: self.daemon.fds() <= before, "the client's leaving ends it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.daemon.socket)
            connection.settimeout(60)
            connection.sendall(get(self.target("/slow")))
            wait_until(lambda: self.daemon.fds() > before + 1, "it is passed on")
            self.client.delete(self.box)
            self.assertEqual(connection.recv(100), b"")
        wait_until(lambda: self.daemon.fds() <= before, "so does the end of the sandbox")

    def test_requests_beyond_the_bound_are_refused(self):
        inside.start(self.client, self.box, inside.SILENT, 4000)
        with contextlib.ExitStack() as stack:
            def hold():
                connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                connection.connect(self.daemon.socket)
                connection.sendall(get(self.target("/", 4000)))
            for _ in range(256):
                hold()
            def full():
                hold()  # a question that was answered before the last of them had its place
                status, _, body = self.client.raw("GET", self.target("/x"))
                return status == 429 and json.loads(body)["error"]["code"] == "limit"
            wait_until(full, "one more is refused")
        wait_until(lambda: self.client.raw("GET", self.target("/x"))[0] == 200, "they count no more when they are gone")

    def test_transfers_do_not_hold_up_the_api(self):
        stop = threading.Event()

        def load():
            while not stop.is_set():
                with contextlib.closing(UnixConnection(self.daemon.socket, 60)) as connection:
                    connection.request("GET", self.target(f"/large?n={64 * MIB}"))
                    reply = connection.getresponse()
                    while reply.read(MIB) and not stop.is_set():
                        pass
        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                self.assertEqual(self.client.get(self.box)["state"], "running")
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class Patience(PortsCase):
    config = {"limits": {"http_timeout_seconds": 1}}

    def test_no_answer_in_time_is_a_gateway_timeout(self):
        sandbox = self.python((inside.SILENT, 3000))["id"]
        status, _, body = self.client.raw("GET", f"/v1/sandboxes/{sandbox}/proxy/3000/")
        self.assertEqual((status, json.loads(body)["error"]["message"]), (504, "port 3000 did not answer in time"))


class Bridge:
    """TCP on loopback to the daemon's socket, for a browser."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(self.path)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self.move, args=(one, other), daemon=True).start()

    @staticmethod
    def move(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)


class Browser(PortsCase):
    """A page of a dev server on 127.0.0.1 inside, whose script opens its WebSocket, in a real Chromium."""

    def dom(self, url):
        with tempfile.TemporaryDirectory() as profile:
            result = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update", "--proxy-server=direct://",
                 "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--dump-dom", url],
                capture_output=True, text=True, timeout=300, check=False)
        return result.stdout

    @unittest.skipUnless(CHROMIUM, "no chromium")
    def test_chromium_through_the_forward_and_through_the_path(self):
        sandbox = self.python((inside.SERVER, "127.0.0.1", 3000), ports=[3000])
        self.assertIn("echo: from the page", self.dom(sandbox["ports"][0] and self.forward(sandbox["id"])["url"]))
        bridge = Bridge(self.daemon.socket)
        with bridge.listener:
            self.assertIn("echo: from the page", self.dom(f"http://127.0.0.1:{bridge.port}/v1/sandboxes/{sandbox['id']}/proxy/3000/"))


class CommandLine(PortsCase, CliCase):
    def test_ports_from_the_command_line(self):
        wanted = free_port()
        made = self.hutch("create", "python:test", "--name", "box", "-p", f"{wanted}:3000")
        self.assertIn(f"port 3000 is reached at 127.0.0.1 port {wanted}", made.stderr.decode())
        inside.start(self.client, "box", inside.SERVER, "127.0.0.1", 3000)
        self.assertIn(b"you asked", ask(wanted, get("/x")))
        where = self.text("port", "add", "box", "4000", "--label", "api").strip()
        self.assertRegex(where, r"^127\.0\.0\.1:\d+$")
        listed = self.text("port", "ls", "box")
        self.assertRegex(listed, rf"3000\s+127\.0\.0\.1:{wanted}\s+listening\s+1 ")
        self.assertRegex(listed, rf"4000\s+{where}\s+nobody listens.*api")
        self.text("port", "rm", "box", "4000")
        self.assertEqual([p["port"] for p in self.client.get("box")["ports"]], [3000])
        self.assertEqual(self.text("open", "box", "3000", "--print"), f"http://127.0.0.1:{wanted}/\n")
        opened = self.hutch("open", "box", "5000", "--print")
        self.assertIn(b"nobody listens on port 5000 inside yet", opened.stderr)
        self.assertEqual([p["port"] for p in self.client.get("box")["ports"]], [3000, 5000])
        for wrong in ("x", "0", "70000", ":3000", "1:2:3:4:5"):
            with self.subTest(wrong):
                self.assertNotEqual(self.hutch("port", "add", "box", wrong).returncode, 0)


if __name__ == "__main__":
    unittest.main()
