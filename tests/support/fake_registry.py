"""A registry on loopback that goes wrong as it is told: fake_registry.py DIRECTORY [CERT KEY].

Serves the OCI image layout DIRECTORY/layout as every repository. The tag "index" is its index.json, every other its first
manifest. Prints the numbers of its two ports: one for the registry, one for "another host". DIRECTORY/rules.json, read again
when it changes, is a list of rules; of those whose "match" is found in "port path" (port: "registry" or "other"), the first
whose "times" are not used up counts. DIRECTORY/requests.log gets one JSON object for each request.
"""
import base64
import json
import pathlib
import re
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 65536


class State:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.lock = threading.Lock()
        self.text, self.rules = "", []

    def rule(self, place):
        with self.lock:
            path = self.directory / "rules.json"
            text = path.read_text() if path.exists() else "[]"
            if text != self.text:
                self.text, self.rules = text, json.loads(text)
            for rule in self.rules:
                if re.search(rule["match"], place) and rule.get("times", 1) > 0:
                    if "times" in rule:
                        rule["times"] -= 1
                    return rule
            return {}

    def log(self, entry):
        with self.lock, open(self.directory / "requests.log", "a") as out:
            out.write(json.dumps(entry) + "\n")

    def blob(self, digest):
        path = self.directory / "layout/blobs/sha256" / digest.removeprefix("sha256:")
        return path.read_bytes() if re.fullmatch("sha256:[0-9a-f]{64}", digest) and path.exists() else None

    def document(self, reference):
        """(bytes, media type) of a manifest."""
        index = (self.directory / "layout/index.json").read_bytes()
        manifests = json.loads(index)["manifests"]
        if reference == "index":
            return index, "application/vnd.oci.image.index.v1+json"
        digest = reference if reference.startswith("sha256:") else manifests[0]["digest"]
        body = self.blob(digest)
        own = json.loads(body).get("mediaType") if body else None
        return body, own or "application/vnd.oci.image.manifest.v1+json"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port_name = "registry"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.answer()

    def do_GET(self):
        self.form = ""
        self.answer()

    def answer(self):
        state = self.server.state
        name = self.server.port_name
        rule = state.rule(f"{name} {self.path}")
        state.log({"port": name, "method": self.command, "path": self.path, "range": self.headers.get("Range", ""),
                   "authorization": self.headers.get("Authorization", ""), "form": self.form})
        wanted = rule.get("want", "")
        if wanted and self.headers.get("Authorization", "") != wanted:
            return self.send(401, {"WWW-Authenticate": rule["challenge"]}, rule.get("refusal", "").encode())
        if "stall" in rule:
            time.sleep(rule["stall"])
        if "location" in rule:
            return self.send(rule.get("status", 307), {"Location": self.echo(rule["location"])}, b"")
        if "status" in rule or "body" in rule:
            headers = {key: self.echo(value) for key, value in rule.get("headers", {}).items()}
            return self.send(rule.get("status", 200), headers, self.echo(rule.get("body", "")).encode() * rule.get("repeat", 1))
        match = re.fullmatch(r"/v2/.+/(manifests|blobs)/([^/]+)", self.path.split("?")[0])
        if not match:
            return self.send(404, {}, b"")
        if match[1] == "manifests":
            body, kind = state.document(match[2])
        else:
            body, kind = state.blob(match[2]), "application/octet-stream"
        if body is None:
            return self.send(404, {}, b'{"errors":[{"code":"BLOB_UNKNOWN","message":"not here"}]}')
        self.send_blob(body, {"Content-Type": rule.get("content_type", kind), "Docker-Content-Digest": "sha256:" + "0" * 64}, rule)

    def echo(self, text):
        given = self.headers.get("Authorization", "")
        return text.replace("$AUTHORIZATION", given).replace("$DECODED", decoded(given))

    def send_blob(self, body, headers, rule):
        if rule.get("corrupt"):
            body = bytes([body[0] ^ 1]) + body[1:]
        body += b"x" * rule.get("longer", 0)
        status, begin = 200, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and not rule.get("ignore_range"):
            begin = int(asked[1]) + rule.get("shift", 0)
            if rule.get("unsatisfiable") or begin >= len(body):
                return self.send(416, {}, b"")
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        headers.update(rule.get("headers", {}))
        self.send(status, headers, body[begin:], rule)

    def send(self, status, headers, body, rule={}):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if rule.get("chunked"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(rule.get("content_length", len(body))))
        self.end_headers()
        end = min(len(body), rule.get("close_after", len(body)))
        try:
            chunk = rule.get("chunk", CHUNK)
            for at in range(0, end, chunk):
                self.wfile.write(body[at:min(at + chunk, end)])
                if "pause" in rule:
                    self.wfile.flush()
                    time.sleep(rule["pause"])
        except OSError:
            self.close_connection = True
        if end < len(body):
            if "then_stall" in rule:
                time.sleep(rule["then_stall"])
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients hang up in the middle: that is what the tests are about."""


def decoded(authorization):
    scheme, _, value = authorization.partition(" ")
    return base64.b64decode(value).decode() if scheme == "Basic" else value


def main():
    state = State(sys.argv[1])
    ports = []
    for name in ("registry", "other"):
        server = Server(("127.0.0.1", 0), Handler)
        server.state, server.port_name = state, name
        if len(sys.argv) == 4 and name == "registry":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(sys.argv[2], sys.argv[3])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        ports.append(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*ports, flush=True)
    sys.stdin.read()  # until whoever started it is gone


if __name__ == "__main__":
    main()
