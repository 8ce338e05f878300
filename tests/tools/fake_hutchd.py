"""A server that plays hutchd on a Unix socket: sandboxes are dictionaries, and a command's name says what befalls it."""
import base64
import http.server
import json
import socketserver
import threading
import urllib.parse

IMAGE = {"id": "sha256:" + "ab" * 32, "references": ["python:latest"], "size_bytes": 1048576, "created": "2026-01-02T03:04:05.000Z",
         "layers": 1, "user": "1000:1000"}


def reply_of(command, request):
    """The exec reply, or (status, code) of an error."""
    reply = {"exit_code": 0, "signal": None, "cause": "exited", "stdout": "", "stderr": "", "stdout_encoding": "utf-8",
             "stderr_encoding": "utf-8", "stdout_bytes": 0, "stderr_bytes": 0, "duration_ms": 1.5, "timed_out": False,
             "oom_killed": False, "pids_limit_hit": False, "stdout_truncated": False, "stderr_truncated": False}
    name = command[0]
    if name == "absent":
        return 422, "command_not_found"
    if name == "data":
        return 422, "command_not_executable"
    killed = {"exit_code": None, "signal": "SIGKILL"}
    reply.update({
        "exit": {"exit_code": int(command[1]) if name == "exit" else 0, "stderr": "gone\n"},
        "echo": {"stdout": " ".join(command[1:]) + "\n"},
        "bytes": {"stdout": base64.b64encode(b"\xff\x00\xfe").decode(), "stdout_encoding": "base64"},
        "cat": {"stdout": request.get("stdin", "") or base64.b64decode(request.get("stdin_base64", "")).hex()},
        "slow": {**killed, "timed_out": True, "cause": "timed_out"},
        "greedy": {**killed, "oom_killed": True, "cause": "out_of_memory"},
        "bomb": {"pids_limit_hit": True},
        "chatty": {"stdout_truncated": True, "stdout_bytes": 5000000},
    }.get(name, {}))
    return reply


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "unix"

    def answer(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body)

    def fail(self, status, code, message):
        self.answer(status, {"error": {"code": code, "message": message, "hint": "the hint"}})

    def events(self, *events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in events:
            text = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def request_json(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")

    def do_GET(self):
        path, _, query = self.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.split("/")[2:]]
        fake = self.server.fake
        fake.requests.append(("GET", self.path, None))
        if parts == ["health"]:
            self.answer(200, {"status": "ok"})
        elif parts == ["info"]:
            self.answer(200, {"version": "0", "catalog": ["python"], "pools": {"enabled": True, "blanks_ready": 1, "blanks_wanted": 2}})
        elif parts == ["images"]:
            self.answer(200, {"images": [IMAGE]})
        elif parts[0] == "images":
            self.answer(200, {**IMAGE, "asked": parts[1]})
        elif parts == ["sandboxes"]:
            self.answer(200, {"sandboxes": list(fake.sandboxes.values()), "query": query})
        elif parts[1] in fake.sandboxes:
            self.answer(200, fake.sandboxes[parts[1]])
        else:
            self.fail(404, "not_found", "no sandbox " + parts[1])

    def do_POST(self):
        body, fake = self.request_json(), self.server.fake
        fake.requests.append(("POST", self.path, body))
        parts = self.path.split("/")[2:]
        if parts == ["sandboxes"]:
            if body["image"] == "absent":
                return self.fail(404, "not_found", "no image absent")
            sandbox = fake.add(body)
            return self.answer(201, sandbox)
        if parts[0] == "images":
            if body.get("name") == "broken":
                return self.events(("progress", {"stage": "copy"}), ("error", {"error": {"code": "corrupt", "message": "bad layer"}}))
            steps = [("progress", {"stage": "copy", "subject": "layer", "done": n, "total": 4}) for n in range(1, 5)]
            return self.events(*steps, ("progress", {"stage": "unpack", "subject": "", "done": 0, "total": 0}), ("result", IMAGE))
        if parts[1] not in fake.sandboxes:
            return self.fail(404, "not_found", "no sandbox " + parts[1])
        if parts[2] == "heartbeat":
            return self.answer(204)
        if body["command"][0] == "hang":
            fake.hanging.set()
            self.connection.recv(1)  # until the client hangs up
            self.close_connection = True
            return None
        reply = reply_of(body["command"], body)
        if isinstance(reply, tuple):
            return self.fail(*reply, "cannot run " + body["command"][0])
        return self.answer(200, reply)

    def do_DELETE(self):
        fake = self.server.fake
        fake.requests.append(("DELETE", self.path, None))
        parts = [urllib.parse.unquote(part) for part in self.path.split("/")[2:]]
        if parts[0] == "images":
            return self.answer(200, {"removed": {"references": [parts[1]], "layers": [], "freed_bytes": 2048}})
        if fake.sandboxes.pop(parts[1], None) is None:
            return self.fail(404, "not_found", "no sandbox " + parts[1])
        return self.answer(204)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # a client that hung up


class FakeHutchd:
    def __init__(self, path):
        self.path = path
        self.sandboxes = {}
        self.requests = []
        self.made = 0
        self.lock = threading.Lock()
        self.hanging = threading.Event()
        self.server = Server(path, Handler)
        self.server.fake = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, body):
        with self.lock:
            self.made += 1
            name = f"sb-{self.made:016d}"
        self.sandboxes[name] = {"id": name, "name": body.get("name"), "state": "running", "image": body["image"], "user": "1000:1000",
                                "created_at": "2026-01-02T03:04:05.000Z", "processes": 0, "limits": {"memory_bytes": 536870912}}
        return self.sandboxes[name]

    def bodies(self, ending):
        return [body for method, path, body in self.requests if method == "POST" and path.endswith(ending)]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
