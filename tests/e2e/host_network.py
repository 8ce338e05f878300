"""What of hutch is in the host's network, read with ip(8) and nft(8): to find what was left behind."""
import contextlib
import json
import os
import pathlib
import subprocess

OURS = ("lo", "uplink")
OF_A_LINK = "of a link: "  # begins elements that go with one


def links():
    """Names of links but the test's own."""
    return sorted(link["ifname"] for link in json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
                  if link["ifname"] not in OURS)


def routes():
    found = []
    for family in ("-4", "-6"):
        lines = subprocess.run(["ip", family, "route"], capture_output=True, text=True, check=True).stdout.splitlines()
        found += [line.strip() for line in lines if not any(f"dev {name}" in line for name in OURS)]
    return sorted(found)


def rules():
    """(elements of sets and maps, rules) of all tables, as text that can be compared; handles and counts left out."""
    whole = json.loads(subprocess.run(["nft", "-j", "list", "ruleset"], capture_output=True, check=True).stdout)["nftables"]
    elements, written = [], []
    for entry in whole:
        kind, body = next(iter(entry.items()))
        if kind in ("set", "map"):
            place = (OF_A_LINK if "iface_index" in body["type"] else "") + body["name"]
            elements += [f"{place}: {plain(element)}" for element in body.get("elem", [])]
        elif kind == "rule":
            written.append(f"{body['chain']}: {plain(body['expr'])}")
        elif kind in ("counter", "quota", "limit", "ct expectation"):
            elements.append(f"{kind} {body['name']}")
    return sorted(elements), sorted(written)


def plain(value):
    def without_counts(item):
        if isinstance(item, dict):
            return {key: without_counts(inner) for key, inner in item.items() if key not in ("packets", "bytes", "used", "expires", "handle")}
        return [without_counts(inner) for inner in item] if isinstance(item, list) else item

    return json.dumps(without_counts(value), sort_keys=True)


def everything():
    elements, written = rules()
    return {"links": links(), "routes": routes(), "elements": elements, "rules": written}


def listeners(pid):
    """(protocol, address and port in hexadecimal) of what listens in the namespace of a process."""
    found = []
    for protocol, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in pathlib.Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state:
                found.append((protocol, fields[1]))
    return sorted(found)


def programs(name):
    """Pids of the processes called `name` in this network namespace."""
    here, found = os.readlink("/proc/self/ns/net"), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if pathlib.Path("/proc", entry, "comm").read_text().strip() == name[:15] and os.readlink(f"/proc/{entry}/ns/net") == here:
                    found.append(int(entry))
    return found
