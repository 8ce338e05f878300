"""A server that plays hutchd on a Unix socket: sandboxes are dictionaries, and a command's name says what befalls it."""
import base64
import http.server
import json
import socketserver
import threading
import urllib.parse

IMAGE = {"id": "sha256:" + "ab" * 32, "references": ["python:latest"], "size_bytes": 1048576, "unique_bytes": 524288, "created": "2026-01-02T03:04:05.000Z",
         "layers": 1, "user": "1000:1000"}


POLICY = {"mode": "allowlist", "presets": ["packages"], "join": ["ws"], "addresses": ["10.213.0.2"],
          "allow": [{"host": "*.a.example", "ports": [443, "8000-8010"], "origin": "preset:packages", "methods": ["GET"], "paths": ["/x/*"],
                     "secret": "token", "tls": "originate"}, {"cidr": "10.0.0.0/8", "ports": [22], "origin": "10.0.0.0/8:22"}],
          "limits": {"bytes_per_second": 1048576, "total_bytes": 0, "connections": 7}, "counters": {"denied": 3, "connections": 1},
          "denied": [{"at": "2026-01-02T03:04:05.000Z", "protocol": "tls", "host": "evil.example\x1b[1m", "address": "", "port": 443,
                      "reason": "not in the allowlist", "times": 3}]}


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

    def exec_events(self, reply):
        """An exec reply as lines of JSON: the output, then the rest as its exit."""
        events = [{"event": "started", "process_id": "p1"}, {"event": "heartbeat"}]
        events += [{"event": "output", "stream": stream, "data": reply[stream], "encoding": reply[stream + "_encoding"]}
                   for stream in ("stdout", "stderr") if reply[stream]]
        events.append({"event": "exit", **{key: value for key, value in reply.items() if not key.endswith("_encoding")
                                           and key not in ("stdout", "stderr")}})
        self.lines(events)

    def lines(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        for part in (text[:7], text[7:]):  # a line may come in pieces
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def request_body(self):
        """A body of a known length or chunked."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_PUT(self):
        fake = self.server.fake
        path, _, query = self.path.partition("?")
        if "refused" in path:  # before the body was read
            self.close_connection = True
            return self.fail(403, "forbidden", "not there")
        body = self.request_body()
        fake.requests.append(("PUT", self.path, None))
        name = urllib.parse.parse_qs(query)["path"][0] + ".tar" if path.endswith("/archive") else \
            "/" + urllib.parse.unquote(path.split("/files/")[1])
        fake.files[name] = (body, query)
        if path.endswith("/archive"):
            fake.directories.add(name.removesuffix(".tar"))
        return self.answer(201, {"path": name, "size": len(body)})

    def get_file(self, path, query):
        asked = urllib.parse.parse_qs(query)
        files = self.server.fake.files
        if path.endswith("/files"):
            if "glob" in asked:
                return self.answer(200, {"entries": [{"path": "/f", "type": "file", "mode": "0751"}]})
            if asked["path"][0].rstrip("/") not in self.server.fake.directories:
                return self.fail(404, "not_found", "no directory")
            return self.answer(200, {"entries": []})
        name = asked["path"][0] + ".tar" if path.endswith("/archive") else "/" + urllib.parse.unquote(path.split("/files/")[1])
        if name not in files:
            return self.fail(404, "not_found", "no file " + name)
        body = files[name][0]
        if self.server.fake.damages_files:
            body = body[:1200] + b"!" + body[1201:]  # of a tar of one directory: in its first file
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (1 if "cut" in name else 0)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "cut" in name
        return None

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
        elif parts == ["catalog"]:
            entry = {"name": "python", "description": "Python 3", "suite": "bookworm", "components": ["main"], "packages": ["python3"], "path": None, "image": IMAGE["id"]}
            own = {**entry, "name": "mine", "path": "/etc/hutch/catalog/mine.json", "image": None}
            refused = {"path": "/etc/hutch/catalog/bad.json", "error": {"code": "invalid_argument", "message": "/etc/hutch/catalog/bad.json: \x1b[1m"}}
            self.answer(200, {"entries": [entry, own], "refused": [refused]})
        elif parts == ["images"]:
            self.answer(200, {"images": [IMAGE]})
        elif parts[0] == "images":
            self.answer(200, {**IMAGE, "asked": parts[1]})
        elif parts == ["networks"]:
            self.answer(200, {"networks": list(fake.networks.values())})
        elif parts[0] == "networks":
            self.answer(200, fake.networks[parts[1]])
        elif parts == ["network", "presets"]:
            self.answer(200, {"presets": [{"name": "packages", "allow": [{"host": "deb.example", "ports": [80], "origin": "deb.example:80"}]},
                                          {"name": "none", "allow": []}]})
        elif parts == ["secrets"]:
            self.answer(200, {"secrets": [{"name": "token", "valid": True, "hosts": ["a.example"], "header": "Authorization", "error": None},
                                          {"name": "bad", "valid": False, "hosts": [], "header": None, "error": {"message": "may be read by others"}}]})
        elif parts[0] == "sandboxes" and parts[2:] == ["network"]:
            self.answer(200, POLICY)
        elif parts == ["sandboxes"]:
            self.answer(200, {"sandboxes": list(fake.sandboxes.values()), "query": query})
        elif parts[1] in fake.sandboxes and parts[2:3] in (["files"], ["archive"]):
            self.get_file(path, query)
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
            if "ndjson" in self.headers.get("Accept", ""):
                pulled = [{"event": "progress", "stage": "resolve", "subject": body["image"], "done": 0, "total": 0}]
                return self.lines((pulled if body["image"] == "pulled" else []) + [{"event": "result", **sandbox}])
            return self.answer(201, sandbox)
        if parts == ["networks"]:
            fake.networks[body["name"]] = {"name": body["name"], "subnet_v4": "10.213.0.0/24", "subnet_v6": "fd00::/64",
                                           "members": [{"id": "sb-1", "name": "", "address_v4": "10.213.0.2", "address_v6": "fd00::2"}]}
            return self.answer(201, fake.networks[body["name"]])
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
        if "ndjson" in self.headers.get("Accept", ""):
            return self.exec_events(reply)
        return self.answer(200, reply)

    def do_PATCH(self):
        body = self.request_json()
        self.server.fake.requests.append(("PATCH", self.path, body))
        self.answer(200, {"id": self.path.split("/")[3]})

    def do_DELETE(self):
        fake = self.server.fake
        fake.requests.append(("DELETE", self.path, None))
        parts = [urllib.parse.unquote(part) for part in self.path.split("/")[2:]]
        if parts[0] == "images":
            return self.answer(200, {"removed": {"references": [parts[1]], "layers": [], "freed_bytes": 2048}})
        if parts[0] == "networks":
            return self.answer(204) if fake.networks.pop(parts[1], None) else self.fail(404, "not_found", "no network " + parts[1])
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
        self.networks = {}
        self.files = {}  # path: (bytes, query); a tree as its path + ".tar"
        self.directories = set()
        self.damages_files = False
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
