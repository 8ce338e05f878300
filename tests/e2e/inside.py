"""An image with the host's own Python, and servers to run in sandboxes of it."""
import io
import os
import pathlib
import re
import subprocess
import tarfile
import time

import images

PYTHON = os.path.realpath("/usr/bin/python3")
LEFT_OUT = re.compile(r"/(test|tests|idlelib|tkinter|lib2to3|ensurepip|distutils|config-[^/]*|__pycache__|dist-packages)(/|$)")


def libraries(program):
    """What the loader maps for it, the loader itself included."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", text)))


def python_image(directory, name="python:test"):
    """An OCI layout of this host's Python: its program, its modules, its libraries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in ("usr", "usr/bin", "usr/lib", "tmp", "workspace", "etc", "lib", "lib64"):
            info = tarfile.TarInfo(path)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        tar.add(PYTHON, "usr/bin/python3")
        modules = subprocess.check_output([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"], text=True).strip()
        tar.add(modules, modules[1:], filter=lambda info: None if LEFT_OUT.search("/" + info.name) else info)
        needed = set(libraries(PYTHON))
        for extension in pathlib.Path(modules, "lib-dynload").glob("*.so"):
            needed.update(libraries(str(extension)))
        for library in sorted(needed):
            tar.add(os.path.realpath(library), library[1:])
        tar.add(subprocess.run(["which", "busybox"], capture_output=True, text=True, check=True).stdout.strip(), "usr/bin/busybox")
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        tar.addfile(link)
        link = tarfile.TarInfo("usr/bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
    layout = images.Layout(pathlib.Path(directory, "python-layout")).add(out.getvalue())
    return layout.finish(name, config={"User": "1000:1000", "Env": ["PATH=/usr/bin:/bin"]})


# An HTTP server whose paths are told by the tests that use them, and a WebSocket that echoes.
SERVER = r'''
import base64, hashlib, http.server, os, socket, struct, sys, threading, time

ECHOED = threading.Event()
# The picture comes when the socket was used: until then the page is not loaded.
PAGE = b"""<!doctype html><title>dev</title><p id=said>nothing</p><img src="held"><script>
const socket = new WebSocket(new URL('socket', location.href).href.replace(/^http/, 'ws'));
socket.onopen = () => socket.send('from the page');
socket.onmessage = (event) => { if (event.data != 'seen') { document.getElementById('said').textContent = 'echo: ' + event.data; socket.send('seen'); } };
socket.onerror = () => { document.getElementById('said').textContent = 'failed'; };
</script>"""


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    daemon_threads = True
    request_queue_size = 128


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def text(self, data, **headers):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def chunks(self):
        while True:
            size = int(self.rfile.readline(), 16)
            yield self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            yield from self.chunks()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/":
            return self.text(PAGE, Content_Type="text/html")
        if path == "/head":
            return self.text((self.requestline + "\n" + str(self.headers)).encode())
        if path == "/socket":
            return self.websocket()
        if path == "/held":
            ECHOED.wait(60)
            ECHOED.clear()
            return self.text(b"")
        if path == "/large":
            return self.large(int(self.path.split("=")[1]))
        if path == "/events":
            return self.events()
        if path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/there")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if path == "/slow":
            time.sleep(3600)
        if path == "/early":
            self.send_response_only(103)
            self.send_header("Link", "</style>; rel=preload")
            self.end_headers()
        if path == "/old":
            self.protocol_version = "HTTP/1.0"
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            return self.wfile.write(b"until the end")
        return self.text(b"you asked for " + self.path.encode())

    do_HEAD = do_GET

    def answer(self):
        whole, hash_ = 0, hashlib.sha256()
        for piece in self.body():
            whole += len(piece)
            hash_.update(piece)
        self.text(f"{self.command} {whole} {hash_.hexdigest()}".encode())

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

    def large(self, count):
        self.send_response(200)
        self.send_header("Content-Length", str(count))
        self.end_headers()
        block = bytes(range(256)) * 4096
        for _ in range(count // len(block)):
            self.wfile.write(block)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(3):
            text = b"data: %d\n\n" % i
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
            while i < 2 and not os.path.exists("/tmp/event-%d-read" % i):
                time.sleep(0.01)
        self.wfile.write(b"0\r\n\r\n")

    def websocket(self):
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + guid).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            answer = bytes([0x80 | head[0] & 15])
            answer += bytes([size]) if size < 126 else bytes([126]) + struct.pack(">H", size)
            self.wfile.write(answer + data)
            if data == b"seen":
                ECHOED.set()
            if head[0] & 15 == 8:
                return


server = Server((sys.argv[1], int(sys.argv[2])), Handler)
print("ready", flush=True)
server.serve_forever()
'''

# Answers each connection with the bytes it was started with, whatever is asked; then closes.
CANNED = r'''
import base64, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    try:
        connection.sendall(base64.b64decode(sys.argv[2]))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    except OSError:
        pass
    connection.close()
'''

# Reads to the end, then says how much that was: a half-closed connection.
COUNTER = r'''
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    count = 0
    while piece := connection.recv(65536):
        count += len(piece)
    connection.sendall(b"%d bytes" % count)
    connection.close()
'''

# Accepts and holds.
SILENT = r'''
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
held = []
while True:
    held.append(listener.accept())
'''


def start(client, sandbox, program, *arguments, patience=60):
    """Runs it in the background inside; returns the process's id once it has said that it is ready."""
    process = client.call("POST", f"/v1/sandboxes/{sandbox}/processes",
                          {"command": ["/usr/bin/python3", "-c", program, *[str(a) for a in arguments]]})["id"]
    deadline = time.monotonic() + patience
    said = ""
    while time.monotonic() < deadline:
        output = client.call("GET", f"/v1/sandboxes/{sandbox}/processes/{process}/output")
        said = "".join(chunk.get("data", "") for chunk in output["chunks"])
        if "ready" in said:
            return process
        time.sleep(0.02)
    raise AssertionError(f"not ready: {said}")
