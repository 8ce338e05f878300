"""A whole internet for one test program, in namespaces of its own, so that no packet of a test can leave the machine.

enter() moves the calling process into a network namespace, "the host", and a mount namespace; whatever it starts afterwards
(hutchd above all) is in them too. Internet().start() then makes the namespace of internet_servers.py at the other end of a veth
pair. Nothing has a name outside of these processes, so everything is gone with them, however they end."""
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SERVERS = HERE / "internet_servers.py"
PATIENCE = 60  # seconds

# Ranges that are public to every rule, used here by nobody.
GATEWAY, HOST = "11.0.0.1", "11.0.0.2"
GATEWAY6, HOST6 = "2a0e:b107:1::1", "2a0e:b107:1::2"
SHARED, OTHER, MIRROR, DNS = "11.1.0.1", "11.1.0.2", "11.1.0.3", "11.1.0.53"
SHARED6, OTHER6, MIRROR6, DNS6 = (f"2a0e:b107:2::{last}" for last in ("1", "2", "3", "53"))
PRIVATE, PRIVATE6, PRIVATE_LISTED = "10.66.0.1", "fd66::1", "10.66.0.2"
METADATA, METADATA6 = "169.254.169.254", "fd00:ec2::254"
MIRRORS = ("pypi.test", "npm.test", "deb.test", "git.test")

# What the DNS server knows: name -> (IPv4, IPv6). Many names are one address, as behind a content network.
NAMES = {
    **{name: ([SHARED], [SHARED6]) for name in ("good.test", "bad.test", "rest.test", "secret.test", "tls.test", "ssh.test", "hidden.test")},
    "other.test": ([OTHER], [OTHER6]),
    "four.test": ([SHARED], []),
    "six.test": ([], [SHARED6]),
    **{name: ([MIRROR], [MIRROR6]) for name in MIRRORS},
    "rebind-private.test": ([PRIVATE], [PRIVATE6]),
    "rebind-loopback.test": (["127.0.0.1"], ["::1"]),
    "rebind-metadata.test": ([METADATA], [METADATA6]),
    "rebind-mapped.test": ([], ["::ffff:10.66.0.1"]),
    "rebind-host.test": ([HOST], [HOST6]),
    "mixed.test": ([PRIVATE, SHARED], []),
    "impostor.test": ([SHARED], []),  # no certificate has this name
}
ALIASES = {"alias.test": "hidden.test", "alias-private.test": "rebind-private.test"}
WILDCARDS = {"wild.test": ([SHARED], [SHARED6])}  # any labels below
FLIPPING = {"flip.test": ([SHARED], [PRIVATE])}   # the first query, the later ones
HTTP_PORTS, TLS_PORTS, BANNER_PORTS, ECHO_PORTS, UDP_PORTS = (80, 8080), (443, 8443), (22,), (7000, 7001), (7007,)
BANNER = b"SSH-2.0-test-internet\r\n"
MARKER_PORT = 9  # datagrams to it say where in the log one is

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def _check(value, what):
    if value != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def unshare(flags):
    _check(libc.unshare(flags), "unshare")


def bind(source, target):
    _check(libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), f"bind {target}")


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout.decode()[-1000:]}{done.stderr.decode()[-1000:]}")
    return done.stdout.decode()


def ip(*words):
    return run("ip", *words)


def sysctl(name, value):
    pathlib.Path("/proc/sys", *name.split(".")).write_text(value)


def enter():
    """Before the process has threads."""
    if threading.active_count() != 1:
        raise AssertionError("too late: there are threads")
    unshare(CLONE_NEWNET | CLONE_NEWNS)
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    ip("link", "set", "lo", "up")


class Certificates:
    """An authority of the test's own and one certificate for all names."""

    def __init__(self, directory):
        self.authority, self.key = directory / "ca.pem", directory / "server.key"
        self.certificate = directory / "server.pem"
        key, request, names = directory / "ca.key", directory / "server.csr", directory / "names"
        known = sorted({*NAMES, *ALIASES, *FLIPPING, *(name for wild in WILDCARDS for name in (wild, "*." + wild))})
        known.remove("impostor.test")
        names.write_text("subjectAltName=" + ",".join("DNS:" + name for name in known))
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        run("openssl", "req", "-x509", *curve, "-keyout", key, "-out", self.authority, "-days", "3650", "-subj", "/CN=test authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        run("openssl", "req", "-new", *curve, "-keyout", self.key, "-out", request, "-subj", "/CN=test")
        run("openssl", "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", key, "-CAcreateserial", "-out", self.certificate,
            "-days", "3650", "-extfile", names)


class HostServices:
    """Listeners that nobody inside may reach: of the host, on its addresses, on loopback, and an abstract one."""
    PORT, LOOPBACK_PORT, ABSTRACT = 8088, 8089, "\0hutch-test-host-service"

    def __init__(self):
        self.reached = []
        self.sockets = []
        for family, kind, address in ((socket.AF_INET6, socket.SOCK_STREAM, ("::", self.PORT)),
                                      (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", self.LOOPBACK_PORT)),
                                      (socket.AF_INET6, socket.SOCK_DGRAM, ("::", self.PORT)),
                                      (socket.AF_UNIX, socket.SOCK_STREAM, self.ABSTRACT)):
            listener = socket.socket(family, kind)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen(16)
            self.sockets.append(listener)
            threading.Thread(target=self.serve, args=(listener, kind, address), daemon=True).start()

    def serve(self, listener, kind, address):
        with contextlib.suppress(OSError):
            while True:
                if kind == socket.SOCK_STREAM:
                    connection, _ = listener.accept()
                    self.reached.append(address)
                    with contextlib.suppress(OSError):
                        connection.sendall(b"host service\n")
                    connection.close()
                else:
                    _, peer = listener.recvfrom(2048)
                    if peer is None:  # shut down
                        return
                    self.reached.append(address)
                    listener.sendto(b"host service\n", peer)

    def close(self):
        for listener in self.sockets:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


class Internet:
    """Needs enter(). `www`/NAME/... is what the servers show under that name; `log` what they have seen."""

    def __init__(self, watch="yes"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hutch-internet-"))
        self.www = self.dir / "www"
        self.www.mkdir()
        self.log_file = self.dir / "log"
        self.log_file.touch()
        self.watch = watch
        self.process = self.services = None
        self.mark = 0

    def start(self):
        self.certificates = Certificates(self.dir)
        self.process = subprocess.Popen([sys.executable, str(SERVERS), str(self.dir), self.watch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("namespace")
        # That of the internet before goes with its namespace, which may take a while.
        subprocess.run(["ip", "link", "delete", "uplink"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        ip("link", "add", "uplink", "type", "veth", "peer", "name", "uplink", "netns", self.process.pid)
        ip("address", "add", HOST + "/24", "dev", "uplink")
        ip("-6", "address", "add", HOST6 + "/64", "dev", "uplink", "nodad")
        ip("link", "set", "uplink", "up")
        self.say("linked")
        self.expect("listening")
        ip("route", "add", "default", "via", GATEWAY)
        ip("-6", "route", "add", "default", "via", GATEWAY6, "dev", "uplink")
        sysctl("net.ipv4.ip_forward", "1")
        sysctl("net.ipv6.conf.all.forwarding", "1")
        self.take_over_files()
        self.services = HostServices()
        return self

    def take_over_files(self):
        """The host's resolver and authorities, in this mount namespace alone."""
        (self.dir / "resolv.conf").write_text(f"nameserver {DNS}\noptions timeout:2 attempts:2\n")
        (self.dir / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        bind(self.dir / "resolv.conf", os.path.realpath("/etc/resolv.conf"))
        bind(self.dir / "hosts", os.path.realpath("/etc/hosts"))
        trusted = self.dir / "trusted"
        trusted.mkdir()
        shutil.copy(self.certificates.authority, trusted / "ca-certificates.crt")
        digest = run("openssl", "x509", "-noout", "-hash", "-in", self.certificates.authority).strip()
        shutil.copy(self.certificates.authority, trusted / f"{digest}.0")
        bind(trusted, "/etc/ssl/certs")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def expect(self, word):
        line = self.process.stdout.readline().strip()
        if line != word:
            raise AssertionError(f"internet_servers.py said {line!r}, not {word!r}")

    # --- what arrived
    def settle(self):
        """Until every packet sent before is in the log."""
        self.mark += 1
        text = f"marker {os.getpid()} {self.mark}"
        deadline = time.monotonic() + PATIENCE
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while time.monotonic() < deadline:
                sender.sendto(text.encode(), (GATEWAY, MARKER_PORT))
                for _ in range(20):
                    if text in self.log_file.read_text():
                        return
                    time.sleep(0.005)
        raise AssertionError("the internet does not answer")

    def position(self):
        self.settle()
        return os.path.getsize(self.log_file)

    def since(self, position):
        """Entries of the log, as dictionaries, without the markers."""
        self.settle()
        with open(self.log_file, "rb") as file:
            file.seek(position)
            entries = [json.loads(line) for line in file.read().splitlines()]
        return [entry for entry in entries if entry["kind"] != "marker"]

    def close(self):
        if self.services:
            self.services.close()
        if self.process:
            self.process.kill()
            self.process.communicate()
        for path in ("/etc/ssl/certs", os.path.realpath("/etc/hosts"), os.path.realpath("/etc/resolv.conf")):
            libc.umount2(os.fsencode(path), 2)
        shutil.rmtree(self.dir, ignore_errors=True)
