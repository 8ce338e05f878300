"""HTTP as hostile clients speak it."""
import json
import os
import re
import socket
import struct
import threading
import unittest

from daemon import DaemonCase, wait_until


class Http(DaemonCase):
    config = {"limits": {"http_timeout_seconds": 2, "connections": 40}}

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        connection.connect(self.daemon.socket)
        return connection

    def talk(self, data):
        """Sends bytes, returns all that comes back until the daemon closes or answers."""
        with self.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            reply = b""
            while chunk := connection.recv(65536):
                reply += chunk
            return reply

    def status(self, data):
        reply = self.talk(data)
        self.assertTrue(reply.startswith(b"HTTP/1.1 "), reply)
        return int(reply.split()[1])

    def test_ambiguous_requests_are_refused_and_the_connection_is_closed(self):
        smuggled = b"GET /v1/health HTTP/1.1\r\nHost: h\r\n\r\n"
        for head in (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 5\r\nContent-Length: 5",
                     b"Content-Length: +5", b"Content-Length: 5, 5", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding : chunked",
                     b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"X: y\r\n Transfer-Encoding: chunked", b"X: a\nContent-Length: 5"):
            reply = self.talk(b"POST /v1/sandboxes HTTP/1.1\r\nHost: h\r\n" + head + b"\r\n\r\n0\r\n\r\n" + smuggled)
            self.assertTrue(reply.startswith(b"HTTP/1.1 400 "), (head, reply))
            self.assertEqual(reply.count(b"HTTP/1.1"), 1, (head, reply))

    def test_chunked_and_pipelined_requests_work(self):
        body = json.dumps({"image": "no-such-image"}).encode()
        chunked = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
        data = b"POST /v1/sandboxes HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
        reply = self.talk(data + b"GET /v1/health HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", reply), [b"404", b"200"])

    def test_large_things_are_refused(self):
        self.assertEqual(self.status(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20000 + b"\r\n\r\n"), 413)
        status, _, body = self.client.raw("POST", "/v1/sandboxes", b"{" + b" " * (10 << 20) + b"}")
        self.assertEqual((status, json.loads(body)["error"]["code"]), (413, "too_large"))

    def test_malformed_json_is_refused(self):
        for body in ("", "{", "[1,", "{\"image\": \"busybox\"} x", "{\"image\":\"a\",\"image\":\"b\"}", "\"text\"", "[" * 10000, "{\"image\": \"\\ud800\"}", b"{\"image\": \"\xff\"}"):
            status, _, reply = self.client.raw("POST", "/v1/sandboxes", body)
            self.assertEqual(status, 400, (body, reply))
            self.assertEqual(json.loads(reply)["error"]["code"], "invalid_argument")
        self.assertEqual(self.client.call("GET", "/v1/health"), {"status": "ok"})

    def test_garbage_is_refused(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000).replace(b"\n", b"x") + b"\n",
                     b"GET / HTTP/3.0\r\nHost: h\r\n\r\n"):
            self.assertEqual(self.status(data), 400, data)

    def test_unknown_paths_and_methods(self):
        self.refused("not_found", "GET", "/v1/nothing")
        self.assertIn("POST, GET", self.refused("not_found", "PUT", "/v1/sandboxes")["message"])
        self.refused("not_found", "GET", "/v1/../v1/health")
        self.assertEqual(self.refused("invalid_argument", "GET", "/v1/health?x=1")["field"], "x")

    def test_a_slow_request_does_not_stay(self):
        with self.connect() as connection:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\n")
            self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 400"))
        with self.connect() as idle:
            self.assertEqual(idle.recv(1), b"")

    def test_too_many_connections_are_told_so_and_others_go_on(self):
        self.client.call("GET", "/v1/health")
        held = [self.connect() for _ in range(60)]
        refused = 0
        for connection in held[45:]:
            refused += connection.recv(65536).startswith(b"HTTP/1.1 503")
        self.assertEqual(refused, 15)
        self.assertEqual(self.client.call("GET", "/v1/health"), {"status": "ok"})
        for connection in held:
            connection.close()

    def test_descriptors_sent_along_are_not_kept(self):
        before = self.daemon.fds()
        with self.connect() as connection:
            for _ in range(20):
                fds = struct.pack("i" * 10, *[0] * 10)
                try:
                    connection.sendmsg([b"GET /v1/health HTTP/1.1\r\nHost: h\r\n\r\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                except OSError:
                    break  # a kernel that knows SO_PASSRIGHTS refuses them at once
            self.assertLessEqual(self.daemon.fds(), before + 5)

    def test_hang_ups_at_any_point_leak_nothing(self):
        data = b"POST /v1/sandboxes HTTP/1.1\r\nHost: h\r\nContent-Length: 19\r\n\r\n{\"image\":\"busybox\"}"
        before = self.daemon.fds()
        for length in range(1, len(data) + 1, 3):
            with self.connect() as connection:
                connection.sendall(data[:length])
        for _ in range(10):
            with self.connect() as connection:
                connection.sendall(data)
        wait_until(lambda: self.client.call("GET", "/v1/info")["counts"]["creating"] == 0, "all are done")
        self.daemon.remove_all()
        wait_until(lambda: self.daemon.fds() <= before + 60, "their descriptors are closed")

    def test_many_clients_at_once(self):
        failures = []

        def run():
            client = self.daemon.client()
            try:
                for _ in range(20):
                    assert client.call("GET", "/v1/health") == {"status": "ok"}
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)
            client.close()

        threads = [threading.Thread(target=run) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
