"""An image of the programs that people use a network with, copied from this machine: curl, git, Python with pip, apt, and npm where it is."""
import importlib.util
import io
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile
import zipfile

import images

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = pathlib.Path("/usr/bin/python3")
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "man", "docs"}
GIT = ("git", "git-remote-http", "git-remote-https", "git-sh-setup")
NPM_PLACES = ("/usr/lib/node_modules/npm", "/usr/share/nodejs/npm")
# The same for all; nothing in it is looked for on the network.
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n_apt:x:100:65534::/nonexistent:/bin/false\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n",
    "etc/group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/services": "http 80/tcp\nhttps 443/tcp\nssh 22/tcp\ndomain 53/udp\n",
    "etc/protocols": "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n",
    "etc/gitconfig": "[safe]\n\tdirectory = *\n",
    "etc/apt/sources.list": "deb [trusted=yes] http://deb.test/debian ./\n",
    "etc/apt/apt.conf": "APT::Architecture \"{architecture}\";\nDir::State \"/tmp/apt/state\";\nDir::State::status \"/etc/apt/status\";\nDir::Cache \"/tmp/apt/cache\";\n"
                        "Dir::Etc::trusted \"/dev/null\";\nAPT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nDebug::NoLocking \"1\";\n",
    "etc/apt/status": "",
    "etc/npmrc": "registry=https://npm.test/\ncafile=/etc/ssl/certs/ca-certificates.crt\nupdate-notifier=false\nfund=false\naudit=false\ncache=/tmp/npm\nfetch-retries=0\n",
    "etc/pip.conf": "[global]\nindex-url = https://pypi.test/simple/\ndisable-pip-version-check = true\nretries = 0\nno-cache-dir = true\n",
}


def libraries(binary):
    """Paths of the shared libraries of a program, its loader included."""
    done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
    return {word for line in done.stdout.splitlines() for word in re.findall(r"(/\S+) \(0x", line)}


def npm_place():
    """Where npm is, or None."""
    return next((place for place in map(pathlib.Path, NPM_PLACES) if (place / "bin/npm-cli.js").is_file() and shutil.which("node")), None)


def files_below(top):
    for place, directories, files in os.walk(top):
        directories[:] = sorted(name for name in directories if name not in LEFT_OUT and not name.startswith("config-3"))
        yield from (pathlib.Path(place, name) for name in sorted(files) if os.path.exists(os.path.join(place, name)))


def pack_python(target, library, packages):
    """The archive that Python looks into before anything else: compiled modules, as a read-only root could never keep them. One file
    instead of thousands, each of which takes a disk some time to forget."""
    with zipfile.ZipFile(target, "w") as archive:
        for top, below in ((library, library), *((package, package.parent) for package in packages)):
            for path in files_below(top):
                name = path.relative_to(below)
                compiled = pathlib.Path(importlib.util.cache_from_source(path)) if path.suffix == ".py" else None
                if path.suffix == ".pyc" or "lib-dynload" in name.parts:
                    continue
                if compiled and compiled.exists():
                    archive.write(compiled, name.with_suffix(".pyc"))
                else:
                    archive.write(path, name)


class Root:
    """A tar of a root file system with /usr merged."""

    def __init__(self, path):
        self.tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)  # pylint: disable=consider-using-with
        self.there, self.wanted = set(), set()

    def entry(self, name, kind, mode=0o755, owner=0, **more):
        if name in self.there:
            return None
        self.there.add(name)
        if "/" in name:
            self.directory(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid, info.mtime = kind, mode, owner, owner, 1_600_000_000
        for key, value in more.items():
            setattr(info, key, value)
        return info

    def directory(self, name, **more):
        if info := self.entry(name, tarfile.DIRTYPE, **more):
            self.tar.addfile(info)

    def symlink(self, name, target):
        if info := self.entry(name, tarfile.SYMTYPE, linkname=target):
            self.tar.addfile(info)

    def text(self, name, text, mode=0o644):
        data = text.encode()
        if info := self.entry(name, tarfile.REGTYPE, mode, size=len(data)):
            self.tar.addfile(info, io.BytesIO(data))

    def file(self, name, source):
        """A copy, links followed; what it needs to run comes later."""
        status = os.stat(source)
        if info := self.entry(name, tarfile.REGTYPE, stat.S_IMODE(status.st_mode) | 0o444, size=status.st_size,
                              mtime=int(status.st_mtime)):  # Python's compiled modules name the time of their source
            with open(source, "rb") as file:
                elf = file.read(4) == b"\x7fELF"
                file.seek(0)
                self.tar.addfile(info, file)
            if elf:
                self.wanted.add(str(source))

    def program(self, path):
        self.file(str(path).lstrip("/"), path)

    def tree(self, top, suffixes):
        for path in files_below(top):
            if path.suffix in suffixes:
                self.program(path)

    def close(self):
        """With the libraries of every program that was put in."""
        pending, seen = set(self.wanted), set()
        while pending:
            binary = pending.pop()
            for library in libraries(binary) - seen:
                seen.add(library)
                self.file("usr" + library if not library.startswith("/usr") else library.lstrip("/"), library)
        self.tar.close()


def add_base(root):
    for name in ("bin", "sbin", "lib", "lib64"):
        root.symlink(name, "usr/" + name)
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "run", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d",
                 "etc/apt/trusted.gpg.d", "var/log/apt", "var/lib/dpkg", "usr/share/git-core/templates"):
        root.directory(name)
    root.directory("root", mode=0o700)
    for name in ("tmp", "var/tmp"):
        root.directory(name, mode=0o1777)
    for name in ("workspace", "home/sandbox"):
        root.directory(name, owner=1000)
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    for name, text in FILES.items():
        root.text(name, text.replace("{architecture}", architecture))
    busybox = shutil.which("busybox")
    root.file("usr/bin/busybox", busybox)
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet not in ("busybox", "git", "curl", "python3", "dpkg", "dpkg-deb", "tar", "sh"):
            root.symlink(f"usr/bin/{applet}", "busybox")


def add_tools(root, directory):
    root.program("/usr/bin/dash")  # busybox' own shell would run its applets instead of the programs of these names
    root.symlink("usr/bin/sh", "dash")
    root.program("/usr/bin/tar")
    root.program("/usr/bin/curl")
    root.program("/usr/bin/git")
    for name in GIT:
        path = pathlib.Path("/usr/lib/git-core", name)
        if path.resolve() == pathlib.Path("/usr/bin/git"):
            root.symlink(str(path).lstrip("/"), "../../bin/git")
        else:
            root.program(path)
    python = PYTHON.resolve()
    root.program(python)
    root.symlink("usr/bin/python3", python.name)
    library = pathlib.Path("/usr/lib", python.name)
    packed = pathlib.Path(directory, "python.zip")
    pack_python(packed, library, [pathlib.Path("/usr/lib/python3/dist-packages/pip")])
    root.file(f"usr/lib/{python.name.replace('.', '')}.zip", packed)
    root.tree(library / "lib-dynload", (".so",))
    root.program("/usr/bin/apt-get")
    for method in ("http", "https", "file", "copy", "store", "gpgv"):
        if (path := pathlib.Path("/usr/lib/apt/methods", method)).exists():
            root.program(path)
    for name in ("cputable", "ostable", "tupletable"):
        root.program(f"/usr/share/dpkg/{name}")
    for name in ("dpkg", "dpkg-deb"):
        root.program(f"/usr/bin/{name}")
    if place := npm_place():
        root.file("usr/bin/node", os.path.realpath(shutil.which("node")))
        root.tree(place, (".js", ".cjs", ".mjs", ".json"))
        root.text("usr/bin/npm", f"#!/bin/sh\nexec node {place}/bin/npm-cli.js --globalconfig /etc/npmrc \"$@\"\n", 0o755)


def make(directory, authority):
    """Writes the image tools:latest to `directory` as an OCI layout whose only layer trusts `authority`; returns its path."""
    plain = pathlib.Path(directory, "tools.tar")
    root = Root(plain)
    add_base(root)
    root.text("etc/ssl/certs/ca-certificates.crt", pathlib.Path(authority).read_text())
    root.symlink("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")
    root.file("usr/bin/probe", HERE / "inside_probe.py")
    add_tools(root, directory)
    root.close()
    layout = images.Layout(pathlib.Path(directory, "tools"))
    layout.add_file(plain, images.digest_of_file(plain))
    return layout.finish("tools:latest", config={"User": "1000:1000", "Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/home/sandbox"], "WorkingDir": "/workspace"})

