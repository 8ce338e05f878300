#!/usr/bin/python3
"""What a hostile or an ordinary program does with the network, one thing at a time: probe WHAT [ARGUMENT...]. Run inside a sandbox.

Prints one line. Exit code 0: it worked, with what came back; 1: it was refused, with how; 2: nobody answered in time, which is
never what a refusal looks like."""
import errno
import os
import socket
import ssl
import struct
import sys
import time

SECONDS = 25
PROXY = ("127.0.0.1", 3128)


class Refused(Exception):
    pass


def connect(address, port, family=0):
    """To an address or a name, through the resolver as any program does."""
    last = None
    for found in socket.getaddrinfo(address, int(port), family, socket.SOCK_STREAM):
        connection = socket.socket(found[0], socket.SOCK_STREAM)
        connection.settimeout(SECONDS)
        try:
            connection.connect(found[4])
            return connection
        except OSError as error:
            connection.close()
            last = error
    raise last or Refused("no address")


def receive(connection, until=b"", most=1 << 16):
    data = b""
    while len(data) < most and not (until and until in data):
        chunk = connection.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


def shown(data):
    return data.decode("latin-1").replace("\r", "").replace("\n", " | ")[:1500]


def text(argument):
    """What is to be sent, with \\r, \\n and the like written out."""
    return argument.encode().decode("unicode_escape").encode("latin-1")


# --- bytes

def tcp(address, port, send="", family="0"):
    """Connects, sends, shows what comes back until the other side ends."""
    with connect(address, port, int(family)) as connection:
        if send:
            connection.sendall(text(send))
        end_sending(connection)
        data = receive(connection)
    if not data:
        raise Refused("ended without a byte")
    return shown(data)


def end_sending(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # reset meanwhile: reading tells
            raise


def hear(address, port):
    """The server is to speak first."""
    with connect(address, port) as connection:
        data = receive(connection, b"\n")
        if not data:
            raise Refused("ended without a byte")
        connection.sendall(b"hello\n")
        return shown(data + receive(connection, b"\n"))


def tcp6(address, port, send=""):
    return tcp(address, port, send, str(int(socket.AF_INET6)))


def hold(address, port, host, path):
    """Reads a stream until it ends; tells that it began by a file."""
    with connect(address, port) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        first = receive(connection, b"drop")
        if b" 200 " not in first.split(b"\r\n")[0]:
            raise Refused(shown(first))
        with open("/tmp/begun", "w", encoding="ascii"):
            pass
        total = 0
        while chunk := connection.recv(65536):
            total += len(chunk)
    return f"ended after {total} bytes"


def udp(address, port, send="ping"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SECONDS)
        sender.connect((address, int(port)))
        sender.send(send.encode())
        return shown(sender.recv(2048))


def icmp(address):
    """An echo request by the kind of socket that needs no privilege; where that kind is closed, that is the refusal."""
    six = ":" in address
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP) as sender:
        sender.settimeout(SECONDS)
        sender.connect((address, 0))
        sender.send(struct.pack("!BBHHH", 128 if six else 8, 0, 0, 1, 1) + b"hello")
        return f"echo of {len(sender.recv(2048))} bytes"


def raw(address):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sender:
        sender.sendto(b"\x08\0\xf7\xff\0\0\0\0", (address, 0))
    return "sent"


def packet():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)):
        return "opened"


def abstract(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect("\0" + name)
        return shown(client.recv(100))


# --- DNS

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "TXT": 16, "MX": 15, "AAAA": 28, "HTTPS": 65, "ANY": 255, "AXFR": 252, "PTR": 12}
CODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"


def skip_name(data, at):
    while data[at]:
        if data[at] >= 0xC0:
            return at + 2
        at += 1 + data[at]
    return at + 1


def dns(name, kind="A", server="127.0.0.1", transport="udp"):
    """One query by hand: NOERROR with records is an answer, everything else a refusal."""
    query = struct.pack("!HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + encode_name(name) + struct.pack("!HH", TYPES[kind], 1)
    if transport == "udp":
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(SECONDS)
            client.connect((server, 53))
            client.send(query)
            reply = client.recv(65535)
    else:
        with connect(server, 53) as client:
            client.sendall(struct.pack("!H", len(query)) + query)
            head = receive(client, most=2)
            if len(head) < 2:
                raise Refused("ended without a byte")
            reply = head[2:]
            while len(reply) < struct.unpack("!H", head[:2])[0]:
                reply += client.recv(65535)
    if reply[:2] != query[:2]:
        raise Refused("another query's answer")
    code, count = CODES.get(reply[3] & 15, str(reply[3] & 15)), struct.unpack("!H", reply[6:8])[0]
    at, values = skip_name(reply, 12) + 4, []
    for _ in range(count):
        at = skip_name(reply, at)
        record, _, ttl, length = struct.unpack("!HHIH", reply[at:at + 10])
        data = reply[at + 10:at + 10 + length]
        at += 10 + length
        values.append(socket.inet_ntop(socket.AF_INET if record == 1 else socket.AF_INET6, data) if record in (1, 28) else f"type {record}")
        if ttl > 86400:
            raise Refused(f"a time to live of {ttl}")
    line = f"{code} {' '.join(values)}".strip()
    if code != "NOERROR" or not values:
        raise Refused(line)
    return line


# --- TLS

def hello(name):
    """The first record a client sends for this name; none without one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=name or None).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def with_extension(record, kind, body):
    """The same ClientHello with one extension more; all lengths corrected."""
    message = record[9:]
    at = 34
    at += 1 + message[at]
    at += 2 + struct.unpack("!H", message[at:at + 2])[0]
    at += 1 + message[at]
    extensions = message[at + 2:] + struct.pack("!HH", kind, len(body)) + body
    message = message[:at] + struct.pack("!H", len(extensions)) + extensions
    handshake = b"\x01" + struct.pack("!I", len(message))[1:] + message
    return record[:3] + struct.pack("!H", len(handshake)) + handshake


def tunnel(connection, target):
    connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    reply = receive(connection, b"\r\n\r\n")
    if b" 200" not in reply.split(b"\r\n")[0]:
        raise Refused(shown(reply + receive_more(connection)))


def receive_more(connection):
    try:
        return receive(connection)
    except OSError:
        return b""


def first_answer(connection, sent):
    """What a server says to a ClientHello."""
    connection.sendall(sent)
    data = receive(connection, most=5)
    if not data:
        raise Refused("ended without a byte")
    if data[:1] == b"\x15":
        raise Refused("TLS alert")
    if data[:1] != b"\x16":
        raise Refused(shown(data + receive_more(connection)))
    return f"record of type {data[0]}"


def tls(address, port, name, via=""):
    """A ClientHello for `name` to an address, or through the proxy by CONNECT to `via`. The name "-": none; "ech:x": hidden behind x."""
    record = hello("" if name == "-" else name.removeprefix("ech:"))
    if name.startswith("ech:"):
        # draft-ietf-tls-esni: outer, HKDF-SHA256 and AES-128-GCM, a key and a payload nobody can read.
        record = with_extension(record, 0xFE0D, b"\0\0\1\0\1\x2a" + struct.pack("!H", 32) + os.urandom(32) + struct.pack("!H", 160) + os.urandom(160))
    with connect(address, port) as connection:
        if via:
            tunnel(connection, via)
        return first_answer(connection, record)


def split_hello(address, port, name):
    """The same in small pieces, which a filter that looks at packets does not read."""
    record = hello(name)
    with connect(address, port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(record) - 1, 40):
            connection.sendall(record[at:min(at + 40, len(record) - 1)])
            time.sleep(0.002)
        return first_answer(connection, record[-1:])


def https(address, port, name, path="/"):
    """A whole request with the certificate checked, no proxy variables read."""
    with connect(address, port) as connection, ssl.create_default_context().wrap_socket(connection, server_hostname=name) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        return shown(receive(stream))


def connect_proxy(target, send="", listen=""):
    """CONNECT, then bytes; `listen`: the server speaks first."""
    with connect(*PROXY) as connection:
        tunnel(connection, target)
        data = receive(connection, b"\n") if listen else b""
        if send:
            connection.sendall(text(send))
            end_sending(connection)
            data += receive(connection)
        if not data:
            raise Refused("ended without a byte")
        return shown(data)


def socks(version, host, port, send=""):
    with connect(*PROXY) as connection:
        if version == "4":
            connection.sendall(b"\4\1" + struct.pack("!H", int(port)) + socket.inet_aton(host) + b"\0")
            reply = receive(connection, most=8)
            raise Refused(f"SOCKS4 {reply[:2].hex() or 'nothing'}") if reply[1:2] != b"\x5a" else Refused("SOCKS4 was taken")
        connection.sendall(b"\5\1\0")
        if connection.recv(2) != b"\5\0":
            raise Refused("no method")
        try:
            name = b"\1" + socket.inet_aton(host)
        except OSError:
            name = b"\3" + bytes([len(host)]) + host.encode()
        connection.sendall(b"\5\1\0" + name + struct.pack("!H", int(port)))
        reply = receive(connection, most=10)
        if len(reply) < 2 or reply[1]:
            raise Refused(f"SOCKS code {reply[1] if len(reply) > 1 else 'none'}")
        connection.sendall(text(send))
        end_sending(connection)
        return shown(receive(connection))


def proxy(send):
    """Bytes to the proxy as they are. A refusal is any status from 400 on, or the end."""
    with connect(*PROXY) as connection:
        return answers(connection, text(send))


def caught(address, send):
    """The same to port 80 of an address."""
    with connect(address, 80) as connection:
        return answers(connection, text(send))


def answers(connection, sent):
    """All answers to as many requests as there seem to be; the first refusal ends it."""
    connection.sendall(sent)
    expected, whole = max(1, sent.count(b"HTTP/1.")), b""
    for _ in range(expected):
        data = one_answer(connection)
        if not data:
            raise Refused(shown(whole) + "; ended without a byte")
        whole += data
        status = data.split(b"\r\n")[0].split(b" ")
        if len(status) < 2 or not status[1].isdigit() or int(status[1]) >= 400:
            raise Refused(shown(whole))
    return shown(whole)


def one_answer(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        byte = connection.recv(1)
        if not byte:
            return data
        data += byte
    length = [line.split(b":")[1] for line in data.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if not length:
        return data if b" 101 " in data else data + receive(connection)
    end = len(data) + int(length[0])
    while len(data) < end and (chunk := connection.recv(end - len(data))):
        data += chunk
    return data


def load(address, port, target, host, count, how):
    """`count` requests one after the other, on one connection ("kept") or each on its own ("new")."""
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    connection, times = None, []
    for _ in range(int(count)):
        began = time.perf_counter()
        if connection is None:
            connection = connect(address, port)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        reply = b""
        while not reply.endswith(b"ok\n"):
            chunk = connection.recv(65536)
            if not chunk:
                raise Refused(shown(reply))
            reply += chunk
        if how == "new":
            connection.close()
            connection = None
        times.append(time.perf_counter() - began)
    times.sort()
    return f"{len(times) / sum(times):.0f} {times[len(times) // 2] * 1e6:.0f} {times[len(times) * 99 // 100] * 1e6:.0f}"


def fetch(address, port, target, host):
    """Bytes a second of one answer."""
    with connect(address, port) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = receive(connection, b"\r\n\r\n", 4096)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise Refused(shown(head))
        left = wanted = int(target.split("/")[-1])
        left -= len(head.split(b"\r\n\r\n", 1)[1])
        block, began = bytearray(1 << 18), time.perf_counter()
        while left > 0:
            size = connection.recv_into(block)
            if not size:
                raise Refused(f"ended {left} bytes early")
            left -= size
    return f"{wanted / (time.perf_counter() - began):.0f}"


def local(port):
    """What listens inside on a port, as any tenant may ask."""
    with connect("127.0.0.1", port):
        return "something listens"


PROBES = {f.__name__: f for f in (tcp, tcp6, hear, hold, udp, icmp, raw, packet, abstract, dns, tls, split_hello, https, socks, proxy, caught, local, load, fetch)}
PROBES["connect"] = connect_proxy


def main():
    try:
        print("worked:", PROBES[sys.argv[1]](*sys.argv[2:]))
        return 0
    except TimeoutError as error:
        print("timeout:", error)
        return 2
    except socket.gaierror as error:
        print("refused: name:", error)
    except OSError as error:
        print("refused:", errno.errorcode.get(error.errno, error) if error.errno else error)
    except Refused as error:
        print("refused:", error)
    return 1


if __name__ == "__main__":
    sys.exit(main())
