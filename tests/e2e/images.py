"""Images for tests: OCI layouts from tars that Python's tarfile wrote, and trees as something that can be compared."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import stat
import subprocess
import tarfile

COMPRESSIONS = ("none", "gzip", "zstd")
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
CHUNK = 1 << 20


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_of_file(path):
    whole = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            whole.update(chunk)
    return "sha256:" + whole.hexdigest()


def compress(data, how):
    if how == "gzip":
        return gzip.compress(data, 6, mtime=0)
    if how == "zstd":
        return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


class Layout:
    """An OCI image layout, written piece by piece."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.blobs = self.directory / "blobs/sha256"
        self.blobs.mkdir(parents=True)
        self.layers, self.diff_ids = [], []
        (self.directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, data, media_type):
        (self.blobs / digest_of(data)[7:]).write_bytes(data)
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}

    def add(self, plain, how="none", media_type=None):
        packed = compress(plain, how)
        self.layers.append(self.blob(packed, media_type or LAYER + ("" if how == "none" else "+" + how)))
        self.diff_ids.append(digest_of(plain))
        return self

    def add_file(self, packed, diff_id):
        """A layer too large for memory, moved here."""
        digest = digest_of_file(packed)
        size = os.path.getsize(packed)
        shutil.move(packed, self.blobs / digest[7:])
        self.layers.append({"mediaType": LAYER, "digest": digest, "size": size})
        self.diff_ids.append(diff_id)
        return self

    def finish(self, name="test:latest", config_type=CONFIG, **config):
        text = json.dumps({"architecture": ARCHITECTURE, "os": "linux", "rootfs": {"type": "layers", "diff_ids": self.diff_ids}, **config})
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self.blob(text.encode(), config_type), "layers": self.layers}
        descriptor = self.blob(json.dumps(manifest).encode(), MANIFEST)
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": name}
        (self.directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
        return str(self.directory)


class Tar:
    """A tar entry by entry: Tar().file("a", b"x").symlink("b", "/etc").bytes()."""

    def __init__(self, format=tarfile.PAX_FORMAT):  # pylint: disable=redefined-builtin
        self.out = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.out, mode="w", format=format)  # pylint: disable=consider-using-with
        self.tar.encoding, self.tar.errors = "utf-8", "surrogateescape"

    def add(self, name, kind=tarfile.REGTYPE, data=b"", **more):
        info = tarfile.TarInfo(name)
        info.type, info.size, info.mode, info.mtime = kind, len(data), 0o755 if kind == tarfile.DIRTYPE else 0o644, 1_600_000_000
        for key, value in more.items():
            setattr(info, key, value)
        self.tar.addfile(info, io.BytesIO(data))
        return self

    def file(self, name, data=b"", **more):
        return self.add(name, tarfile.REGTYPE, data, **more)

    def directory(self, name, **more):
        return self.add(name, tarfile.DIRTYPE, **more)

    def symlink(self, name, target, **more):
        return self.add(name, tarfile.SYMTYPE, linkname=target, **more)

    def hardlink(self, name, target, **more):
        return self.add(name, tarfile.LNKTYPE, linkname=target, **more)

    def raw(self, data):
        """Bytes that tarfile would never write, where the next header belongs."""
        self.out.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))
        self.tar.offset = self.out.tell()
        return self

    def bytes(self):
        self.tar.close()
        return self.out.getvalue()


def header(name, kind, size, link=b""):
    """One header block that claims `size`, whatever follows it."""
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136] = b"%011o\0" % size if size < 8 ** 11 else b"\x80" + size.to_bytes(11, "big")
    block[136:148], block[148:156], block[156:157] = b"%011o\0" % 1_600_000_000, b" " * 8, kind
    block[157:157 + len(link)] = link
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def xattrs(path, keep=("user.",)):
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(keep)]
    return tuple(sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in names))


def tree(root, keep_xattrs=("user.",)):
    """{path: (type, mode, uid, gid, mtime in ns, size and hash, link target or device, attributes, the first path of the same file)}"""
    root = os.fsencode(root)
    found, first = {}, {}
    pending = [b""]
    while pending:
        path = pending.pop()
        full = os.path.join(root, path) if path else root
        info = os.lstat(full)
        kind = stat.S_IFMT(info.st_mode)
        content = None
        if stat.S_ISREG(info.st_mode):
            content = (info.st_size, digest_of_file(full))
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(full)
        elif stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
            content = (os.major(info.st_rdev), os.minor(info.st_rdev))
        found[path or b"."] = [kind, oct(stat.S_IMODE(info.st_mode)), info.st_uid, info.st_gid, info.st_mtime_ns, content,
                               xattrs(full, keep_xattrs), (info.st_dev, info.st_ino)]
        if stat.S_ISDIR(info.st_mode):
            pending += [os.path.join(path, name) for name in os.listdir(full)]
    for path in sorted(found):
        entry = found[path]
        entry[-1] = None if stat.S_ISDIR(entry[0]) else first.setdefault(entry[-1], path)
        found[path] = tuple(entry)
    return found
