"""A small client of hutchd's socket: the standard library only."""
import http.client
import json
import socket


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("hutch", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class ApiError(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status = status
        self.error = body["error"]
        self.code = self.error["code"]


class Client:
    """One connection, kept alive. Not for two threads at once."""

    def __init__(self, path, timeout=120):
        self.path, self.timeout = path, timeout
        self.connection = UnixConnection(path, timeout)

    def close(self):
        self.connection.close()

    def raw(self, method, path, body=None, headers=None):
        """Returns (status, headers, bytes)."""
        payload = json.dumps(body) if isinstance(body, (dict, list)) else body
        try:
            self.connection.request(method, path, body=payload, headers=headers or {})
            reply = self.connection.getresponse()
            return reply.status, reply.headers, reply.read()
        except Exception:
            self.connection.close()
            raise

    def call(self, method, path, body=None, headers=None):
        """Returns the parsed reply (None for 204); ApiError for an error."""
        status, _, payload = self.raw(method, path, body, headers)
        parsed = json.loads(payload) if payload else None
        if status >= 400:
            raise ApiError(status, parsed)
        return parsed

    # --- what tests do most
    def create(self, **fields):
        return self.call("POST", "/v1/sandboxes", {"image": "busybox", **fields})

    def delete(self, sandbox):
        return self.call("DELETE", f"/v1/sandboxes/{sandbox}")

    def get(self, sandbox):
        return self.call("GET", f"/v1/sandboxes/{sandbox}")

    def exec(self, sandbox, command, **fields):
        return self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": command, **fields})

    def output(self, sandbox, command, **fields):
        """Standard output of a command that must succeed."""
        result = self.exec(sandbox, command, **fields)
        if result["exit_code"] != 0:
            raise AssertionError(f"{command}: {result}")
        return result["stdout"]
