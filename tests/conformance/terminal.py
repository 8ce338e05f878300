"""The engine's side of a console socket: takes the terminal that a runtime sends."""
import array
import fcntl
import os
import re
import select
import socket
import struct
import termios
import time


class ConsoleSocket:
    def __init__(self, path):
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(10)
        self.master = None

    def take(self):
        """The descriptor of the terminal's other end."""
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(10)
            _, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(4))
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[:4])
        self.master = fds[0]
        return self.master

    def read(self, until, seconds=10):
        """What the terminal says, until the words are there."""
        return read_until(self.master, until, seconds)

    def size(self):
        rows, columns, _, _ = struct.unpack("4H", fcntl.ioctl(self.master, termios.TIOCGWINSZ, bytes(8)))
        return columns, rows

    def close(self):
        self._listener.close()
        if self.master is not None:
            os.close(self.master)


def read_until(fd, until, seconds=10):
    said, end = b"", time.monotonic() + seconds
    while until.encode() not in said and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                part = os.read(fd, 4096)
            except OSError:  # EIO: nobody is at the other end any more
                break
            if not part:
                break
            said += part
    return said.decode(errors="replace")


class PidfdSocket:
    """Takes one pidfd."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.listener.settimeout(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def pid(self):
        connection, _ = self.listener.accept()
        with connection:
            _, fds, _, _ = socket.recv_fds(connection, 4096, 1)
        with open(f"/proc/self/fdinfo/{fds[0]}") as info:
            found = re.search(r"(?m)^Pid:\s*(\d+)", info.read())
        os.close(fds[0])
        return int(found[1])
