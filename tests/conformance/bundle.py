"""Bundles to run: a root file system of the host's static busybox, and a config.json written from the specification."""
import copy
import json
import os
import pathlib
import shutil

BUSYBOX = pathlib.Path("/usr/bin/busybox")
APPLETS = """[ awk cat chmod chown chroot chrt cut date dd dirname dmesg echo env expr false find getopt grep head hostname id ionice
ip kill link ln ls mkdir mkfifo mknod mount mv nproc ps pwd readlink realpath rm rmdir sed seq setsid sh sleep sort stat stty
sync sysctl tail tee test touch tr true tty ulimit umount uname uniq unshare vi wc xargs yes""".split()
DIRECTORIES = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "run", "var", "yard")
ALL_CAPABILITIES = [f"CAP_{name}" for name in """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE
SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE""".split()]
SOME_CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_NET_BIND_SERVICE"]


def mount(destination, kind, source=None, options=()):
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def bind(source, destination, *options):
    return mount(destination, "bind", str(source), ("rbind", *options))


_BASE = {
    "ociVersion": "1.0.2",
    "process": {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": ["true"],
        "env": ["PATH=/bin", "TERM=xterm"],
        "cwd": "/",
        "capabilities": {name: SOME_CAPABILITIES for name in ("bounding", "effective", "permitted")},
        "noNewPrivileges": True,
    },
    "root": {"path": "rootfs", "readonly": False},
    "hostname": "conformance",
    "mounts": [
        mount("/proc", "proc"),
        mount("/dev", "tmpfs", options=("nosuid", "strictatime", "mode=755", "size=65536k")),
        mount("/dev/pts", "devpts", options=("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
        mount("/dev/shm", "tmpfs", "shm", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
    ],
    "linux": {
        "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
    },
}


def base_config(*args):
    config = copy.deepcopy(_BASE)
    if args:
        config["process"]["args"] = list(args)
    return config


def shell_config(script):
    return base_config("sh", "-c", script)


def without_namespace(config, kind):
    config["linux"]["namespaces"] = [row for row in config["linux"]["namespaces"] if row["type"] != kind]


def with_namespace(config, kind, path=None):
    without_namespace(config, kind)
    config["linux"]["namespaces"].append({"type": kind, **({"path": str(path)} if path else {})})


HOST_IDS, IDS = 500000, 65536


def with_user_namespace(config):
    """Ids 0 to 65535 inside are the host's from HOST_IDS on."""
    with_namespace(config, "user")
    for name in ("uidMappings", "gidMappings"):
        config["linux"][name] = [{"containerID": 0, "hostID": HOST_IDS, "size": IDS}]


def make_rootfs(where):
    where = pathlib.Path(where)
    for name in DIRECTORIES:
        (where / name).mkdir(parents=True)
    (where / "tmp").chmod(0o1777)
    program = where / "bin/busybox"
    shutil.copy(BUSYBOX, program)
    for name in APPLETS:
        (where / "bin" / name).symlink_to("busybox")
    (where / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/yard:/bin/sh\n")
    (where / "etc/group").write_text("root:x:0:\nuser:x:1000:\nextra:x:2000:user\n")
    return where


class Bundle:
    def __init__(self, where):
        self.path = pathlib.Path(where)
        self.path.mkdir(parents=True)
        self.rootfs = make_rootfs(self.path / "rootfs")

    def write(self, config):
        text = config if isinstance(config, str) else json.dumps(config)
        (self.path / "config.json").write_text(text)
        return self

    def give(self, uid, gid):
        """The whole bundle to another owner."""
        for directory, names, files in os.walk(self.path):
            for path in (directory, *(os.path.join(directory, name) for name in names + files)):
                os.lchown(path, uid, gid)
        return self
