"""A WebSocket client for tests (RFC 6455), the standard library only."""
import base64
import json
import os
import socket
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocket:
    def __init__(self, path, target, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            self.receive()
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])

    def receive(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise EOFError("the connection ended")
        self.bytes += piece

    def take(self, count):
        while len(self.bytes) < count:
            self.receive()
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def send(self, opcode, data):
        if isinstance(data, str):
            data = data.encode()
        mask = os.urandom(4)
        head = bytes([0x80 | opcode])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", len(data))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def control(self, **message):
        self.send(TEXT, json.dumps(message))

    def next(self):
        """(opcode, bytes) of the next message; pings are answered."""
        whole, first = b"", None
        while True:
            head = self.take(2)
            opcode, size = head[0] & 15, head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.take(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.take(8))[0]
            data = self.take(size)
            if opcode == PING:
                self.send(PONG, data)
                continue
            if opcode == CLOSE:
                return CLOSE, data
            first = first or opcode
            whole += data
            if head[0] & 0x80:
                return first, whole

    def close(self):
        self.socket.close()
