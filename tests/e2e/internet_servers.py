"""The servers of internet.py, in a network namespace of their own: internet_servers.py DIRECTORY WATCH. They write all they see to
DIRECTORY/log (with "no" for WATCH next to nothing, and HTTP is served as fast as can be), one JSON object a line: "packet" (whatever begins something: a SYN, a datagram, an echo request), "dns", "tls", "http",
"bytes". End with standard input."""
import http.server
import json
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

import internet as net

DIRECTORY = pathlib.Path(sys.argv[1])
LOG = os.open(DIRECTORY / "log", os.O_WRONLY | os.O_APPEND)
TYPES = {1: "A", 5: "CNAME", 16: "TXT", 28: "AAAA", 65: "HTTPS", 255: "ANY"}
asked = {}  # how often a flipping name was


def log(kind, **more):
    os.write(LOG, json.dumps({"kind": kind, **more}).encode() + b"\n")


def plain(address):
    """An address without the form that a socket of both families gives it."""
    return address[0].removeprefix("::ffff:")


# --- packets

def describe(packet):
    """What a packet begins, or None."""
    if len(packet) < 40 and packet[0] >> 4 == 6 or len(packet) < 20:
        return None
    if packet[0] >> 4 == 4:
        protocol, header = packet[9], (packet[0] & 15) * 4
        source, target = (socket.inet_ntop(socket.AF_INET, packet[at:at + 4]) for at in (12, 16))
    else:
        protocol, header = packet[6], 40
        source, target = (socket.inet_ntop(socket.AF_INET6, packet[at:at + 16]) for at in (8, 24))
    body = packet[header:]
    found = {"source": source, "target": target}
    if protocol == 6 and len(body) >= 20:
        return {**found, "protocol": "tcp", "port": struct.unpack("!H", body[2:4])[0]} if body[13] & 0x12 == 2 else None
    if protocol == 17 and len(body) >= 8:
        return {**found, "protocol": "udp", "port": struct.unpack("!H", body[2:4])[0], "data": body[8:40]}
    if protocol in (1, 58):
        return {**found, "protocol": "icmp"} if body[:1] in (b"\x08", b"\x80") and protocol == (1 if body[0] == 8 else 58) else None
    return {**found, "protocol": str(protocol)} if protocol not in (0, 2) else None  # but for multicast reports


def sniff(listener):
    while True:
        packet, origin = listener.recvfrom(65535)
        if origin[2] == socket.PACKET_OUTGOING or origin[1] not in (0x0800, 0x86DD):
            continue
        found = describe(packet)
        if found is None:
            continue
        data = found.pop("data", b"")
        if found.get("port") == net.MARKER_PORT:
            log("marker", text=data.decode())
        else:
            log("packet", **found)


# --- DNS

def look_up(name, kind):
    """[(type, data)] or None for a name that does not exist."""
    if name in net.ALIASES:
        target = net.ALIASES[name]
        return [(5, encode_name(target)), *(look_up(target, kind) or [])]
    addresses = net.NAMES.get(name)
    if name in net.FLIPPING:
        count = asked[name, kind] = asked.get((name, kind), 0) + 1
        addresses = (net.FLIPPING[name][0 if count == 1 else 1], [])
    for wild, values in net.WILDCARDS.items():
        if name.endswith("." + wild):
            addresses = values
    if addresses is None:
        return None
    if kind == 1:
        return [(1, socket.inet_pton(socket.AF_INET, address)) for address in addresses[0]]
    if kind == 28:
        return [(28, socket.inet_pton(socket.AF_INET6, address)) for address in addresses[1]]
    if kind == 16:
        return [(16, b"\x0btunnel-data")]
    return []


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def answer(query, transport, peer):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1:at + 3])[0]
    question, name = query[12:at + 5], ".".join(labels)
    log("dns", name=name, type=TYPES.get(kind, str(kind)), transport=transport, peer=plain(peer))
    records = look_up(name, kind)
    body = b""
    owner = b"\xc0\x0c"
    for record, data in records or []:
        body += owner + struct.pack("!HHIH", record, 1, 1, len(data)) + data
        if record == 5:
            owner = data
    return query[:2] + struct.pack("!HHHHH", 0x8580 | (3 if records is None else 0), 1, len(records or []), 0, 0) + question + body


class DnsOverTcp(socketserver.BaseRequestHandler):
    def handle(self):
        while len(head := self.request.recv(2)) == 2:
            reply = answer(self.request.recv(struct.unpack("!H", head)[0]), "tcp", self.client_address)
            self.request.sendall(struct.pack("!H", len(reply)) + reply)


def serve_datagrams(listener, port):
    while True:
        data, peer = listener.recvfrom(4096)
        if port == 53:
            try:
                listener.sendto(answer(data, "udp", peer), peer)
            except (IndexError, struct.error):
                pass
        else:
            log("bytes", port=port, transport="udp", data=data[:100].decode("latin-1"))
            listener.sendto(data, peer)


# --- HTTP

class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def take_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            size = 0
            while length := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                size += len(self.rfile.read(length))
                self.rfile.readline()
            self.rfile.readline()
            return size
        left = size = int(self.headers.get("Content-Length") or 0)
        while left:
            data = self.rfile.read(min(left, 1 << 16))
            if not data:
                break
            left -= len(data)
        return size

    def reply(self, status, data, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def serve(self):
        host = self.headers.get("Host", "")
        log("http", method=self.command, host=host, path=self.path, headers=dict(self.headers.items()), sni=getattr(self.connection, "asked_for", None),
            tls=isinstance(self.connection, ssl.SSLSocket), address=plain(self.connection.getsockname()), peer=plain(self.client_address))
        if self.headers.get("Upgrade"):
            return self.upgrade()
        size = self.take_body()
        path = self.path.split("?")[0]
        file = (DIRECTORY / "www" / host.split(":")[0] / path.lstrip("/")).resolve()
        if path.startswith("/bytes/"):
            return self.send_bytes(int(path.split("/")[2]))
        if path == "/trickle":
            return self.trickle()
        if (DIRECTORY / "www") in file.parents and (file / "index.html").is_file():
            file = file / "index.html"
        if (DIRECTORY / "www") in file.parents and file.is_file():
            kind = {".html": "text/html", ".json": "application/json"}.get(file.suffix, "application/octet-stream")
            return self.reply(200, file.read_bytes(), kind)
        if host.split(":")[0] in net.MIRRORS:
            return self.reply(404, b"no such file\n")
        return self.reply(200, f"served {self.command} {host} {path} {size}\n".encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = serve

    def send_bytes(self, count):
        self.send_response(200)
        self.send_header("Content-Length", str(count))
        self.end_headers()
        block = bytes(1 << 16)
        while count:
            self.wfile.write(block[:count])
            count -= min(count, len(block))

    def trickle(self):
        """A line every 50 ms until the other side goes."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"drop\n")
                time.sleep(0.05)
        except OSError:
            log("gone", path=self.path)
        self.close_connection = True

    def upgrade(self):
        """What follows comes back as it is."""
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + self.headers["Upgrade"].encode() + b"\r\n\r\n")
        while data := self.connection.recv(4096):
            self.connection.sendall(data)
        self.close_connection = True


class FastPages(socketserver.BaseRequestHandler):
    """For measurements: as little of a server as can be, and nothing is written down."""
    REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
    BLOCK = bytes(1 << 18)

    def handle(self):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                chunk = self.request.recv(65536)
                if not chunk:
                    return
                data += chunk
            head, data = data.split(b"\r\n\r\n", 1)
            path = head.split(b" ", 2)[1]
            if not path.startswith(b"/bytes/"):
                self.request.sendall(self.REPLY)
                continue
            left = int(path.split(b"/")[2])
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left:
                self.request.sendall(self.BLOCK[:left])
                left -= min(left, len(self.BLOCK))


class TlsPages(Pages):
    context = None

    def setup(self):
        address = plain(self.request.getsockname())
        try:
            self.request = self.context.wrap_socket(self.request, server_side=True)
        except (ssl.SSLError, OSError) as error:
            log("tls", sni=None, address=address, error=str(error)[:200])
            raise
        log("tls", sni=getattr(self.request, "asked_for", None), address=address)
        super().setup()


def note_name(connection, name, _context):
    connection.asked_for = name


# --- bytes

class Banner(socketserver.BaseRequestHandler):
    """The server speaks first, as with SSH."""

    def handle(self):
        self.request.sendall(net.BANNER)
        data = self.request.recv(4096)
        log("bytes", port=self.request.getsockname()[1], transport="tcp", data=data[:100].decode("latin-1"))
        self.request.sendall(b"heard " + data)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        first = True
        while data := self.request.recv(1 << 16):
            if first:
                log("bytes", port=self.request.getsockname()[1], transport="tcp", data=data[:100].decode("latin-1"))
                first = False
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = daemon_threads = True
    request_queue_size = 1024
    disable_nagle_algorithm = True

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, client_address):
        pass


def make_link():
    net.ip("link", "set", "lo", "up")
    net.ip("address", "add", net.GATEWAY + "/24", "dev", "uplink")
    net.ip("-6", "address", "add", net.GATEWAY6 + "/64", "dev", "uplink", "nodad")
    net.ip("link", "set", "uplink", "up")
    # No default route: a source that nobody translated gets no answer.
    for address in (net.SHARED, net.OTHER, net.MIRROR, net.DNS, net.PRIVATE, net.PRIVATE_LISTED, net.METADATA):
        net.ip("address", "add", address + "/32", "dev", "lo")
    for address in (net.SHARED6, net.OTHER6, net.MIRROR6, net.DNS6, net.PRIVATE6, net.METADATA6):
        net.ip("-6", "address", "add", address + "/128", "dev", "lo", "nodad")


def begin(target, *arguments):
    threading.Thread(target=target, args=arguments, daemon=True).start()


def main():
    net.unshare(net.CLONE_NEWNET)
    print("namespace", flush=True)
    sys.stdin.readline()
    make_link()
    if sys.argv[2] == "yes":
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        listener.bind(("uplink", 3))
        begin(sniff, listener)
    TlsPages.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TlsPages.context.load_cert_chain(DIRECTORY / "server.pem", DIRECTORY / "server.key")
    TlsPages.context.sni_callback = note_name
    pages = Pages if sys.argv[2] == "yes" else FastPages
    for ports, handler in ((net.HTTP_PORTS, pages), (net.TLS_PORTS, TlsPages), (net.BANNER_PORTS, Banner), (net.ECHO_PORTS, Echo), ((53,), DnsOverTcp)):
        for port in ports:
            begin(Server(("::", port), handler).serve_forever)
    # One socket for each address: an answer must come from the address that was asked.
    for address in (net.SHARED, net.OTHER, net.DNS, net.PRIVATE, net.METADATA, net.SHARED6, net.OTHER6, net.DNS6, net.METADATA6):
        for port in (53, *net.UDP_PORTS):
            listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            listener.bind((address, port))
            begin(serve_datagrams, listener, port)
    print("listening", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
