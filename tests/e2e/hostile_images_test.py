"""Hostile archives through the daemon, each in every compression with one outcome: refused as said, or unpacked to what is listed.

The names are those of the attacks: untar_* leave the layer's directory or bring in what a layer may not have, bomb_* exhaust.
Whatever happens, a tree outside keeps every byte, mode, owner, time and attribute, and nothing is left in the store."""
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from daemon import MAKE_IMAGE, DaemonCase
from images import COMPRESSIONS, LAYER, Layout, Tar, compress, header, tree

GNU, USTAR = tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT
INVALID, LARGE, CORRUPT = "invalid_argument", "too_large", "corrupt"
MANY = 2_000_001  # entries: one more than a layer may have


def pax(name, **records):
    return Tar().file(name, pax_headers={key.replace("__", "."): value for key, value in records.items()}).bytes()


def gnu_long(kind, data, claimed=None):
    """A GNU long name ('L') or long link ('K') record, then a plain file 'innocent'."""
    record = header(b"././@LongLink", kind, len(data) if claimed is None else claimed)
    return Tar(GNU).raw(record).raw(data).file("innocent").bytes()


def old_sparse(real_size, pieces=()):
    """The old GNU form: the map is in the header itself."""
    block = bytearray(header(b"sparse", b"S", sum(size for _, size in pieces)))
    block[257:265] = b"ustar  \0"
    for i, (offset, size) in enumerate(pieces):
        block[386 + 24 * i:386 + 24 * i + 24] = b"%011o\0%011o\0" % (offset, size)
    block[483:495] = b"\x80" + real_size.to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return Tar(GNU).raw(bytes(block)).bytes()


def hardlinked_chain(outside):
    """A link to a link to what is outside, and then a write."""
    return Tar().symlink("a", outside).symlink("b", "a").hardlink("c", "b").file("c/victim", b"evil").bytes()


# name: (bytes from the path of the tree outside, outcome: a code, or the paths of the layer)
CORPUS = {
    "untar_symlink_then_write": (lambda o: Tar().symlink("x", o).file("x/victim", b"evil").bytes(), INVALID),
    "untar_symlink_to_root_then_write": (lambda o: Tar().symlink("x", "/").file("x" + o + "/victim", b"evil").bytes(), INVALID),
    "untar_relative_symlink": (lambda o: Tar().symlink("x", "../../../canary").file("x/victim", b"evil").bytes(), INVALID),
    "untar_symlink_chain": (lambda o: Tar().symlink("a", o).symlink("b", "a").file("b/victim", b"evil").bytes(), INVALID),
    "untar_symlink_through_symlink": (lambda o: Tar().symlink("a", "..").symlink("a/b", "..").file("a/b/evil").bytes(), INVALID),
    "untar_symlink_to_proc": (lambda o: Tar().symlink("x", "/proc/self/root").file("x" + o + "/evil").bytes(), INVALID),
    "untar_symlink_to_descriptor": (lambda o: Tar().symlink("x", "/proc/self/fd/3").file("x", b"end\n").bytes(), {"x"}),
    "untar_symlink_gnu": (lambda o: Tar(GNU).symlink("x", o).file("x/victim", b"evil").bytes(), INVALID),
    "untar_symlink_ustar": (lambda o: Tar(USTAR).symlink("x", "/tmp").file("x/evil", b"evil").bytes(), INVALID),
    "untar_symlink_then_directory": (lambda o: Tar().symlink("x", o).directory("x", mode=0o777).file("x/f").bytes(), {"x", "x/f"}),
    "untar_symlink_then_file": (lambda o: Tar().symlink("x", o + "/victim").file("x", b"mine").bytes(), {"x"}),
    "untar_symlink_then_fifo": (lambda o: Tar().symlink("x", o).add("x/p", tarfile.FIFOTYPE).bytes(), INVALID),
    "untar_symlink_then_symlink": (lambda o: Tar().symlink("x", o).symlink("x/link", "/etc").bytes(), INVALID),
    "untar_symlink_then_attributes": (
        lambda o: Tar().symlink("x", o).symlink("x", o, mode=0o4777, pax_headers={"SCHILY.xattr.user.evil": "1"}).bytes(), {"x"}),
    "untar_symlink_that_is_long": (lambda o: Tar().symlink("x", o + "/" * 200).file("x/victim", b"evil").bytes(), INVALID),
    "untar_link_in_pax": (
        lambda o: Tar().add("x", tarfile.LNKTYPE, linkname="y", pax_headers={"linkpath": o + "/victim"}).bytes(), INVALID),
    "untar_link_gnu_long": (
        lambda o: Tar(GNU).raw(header(b"././@LongLink", b"K", len(o) + 8)).raw(o.encode() + b"/victim\0")
        .raw(header(b"x", b"1", 0, b"y")).bytes(), INVALID),
    "untar_hardlink_absolute": (lambda o: Tar().hardlink("x", o + "/victim").file("x", b"evil").bytes(), INVALID),
    "untar_hardlink_dotdot": (lambda o: Tar().hardlink("x", "../../canary/victim").bytes(), INVALID),
    "untar_hardlink_through_symlink": (lambda o: Tar().symlink("d", o).hardlink("x", "d/victim").bytes(), INVALID),
    "untar_hardlink_to_symlink": (
        lambda o: Tar().symlink("a", o + "/victim").hardlink("b", "a").file("b", b"mine").bytes(), {"a", "b"}),
    "untar_hardlink_chain": (hardlinked_chain, INVALID),
    "untar_hardlink_before_its_file": (lambda o: Tar().hardlink("a", "b").file("b").bytes(), INVALID),
    "untar_hardlink_with_data": (lambda o: Tar().raw(header(b"a", b"1", 4, b"/etc/passwd")).raw(b"evil").bytes(), INVALID),
    "untar_dotdot": (lambda o: Tar().file("../canary/victim", b"evil").bytes(), INVALID),
    "untar_dotdot_alone": (lambda o: Tar().directory("..", mode=0o777).bytes(), INVALID),
    "untar_dotdot_behind_a_directory": (lambda o: Tar().directory("a").file("a/../../evil").bytes(), INVALID),
    "untar_dotdot_in_pax": (lambda o: pax("innocent", path="../evil"), INVALID),
    "untar_dotdot_in_global_pax": (
        lambda o: Tar().raw(header(b"g", b"g", 19)).raw(b"19 path=../../evil\n").file("innocent").bytes(), {"innocent"}),
    "untar_dotdot_gnu_long": (lambda o: gnu_long(b"L", b"../" * 60 + b"evil\0"), INVALID),
    "untar_dotdot_directory_mode": (lambda o: Tar().directory("a/..", mode=0o777, uid=1000).bytes(), INVALID),
    "untar_absolute": (
        lambda o: Tar().file(o + "/victim", b"evil").bytes(),
        lambda o: {str(pathlib.Path(*pathlib.Path(o).parts[1:i])) for i in range(2, len(pathlib.Path(o).parts) + 1)} |
        {o[1:] + "/victim"}),
    "untar_root_as_symlink": (lambda o: Tar().symlink(".", o).file("victim", b"evil").bytes(), INVALID),
    "untar_root_as_symlink_slash": (lambda o: Tar().symlink("/", o).file("victim", b"evil").bytes(), INVALID),
    # Read as a directory, which has no data: what follows is no header.
    "untar_root_as_file": (lambda o: Tar().file("./", b"x").bytes(), CORRUPT),
    "untar_devnode_dropped": (
        lambda o: Tar().add("null", tarfile.CHRTYPE, devmajor=1, devminor=3).add("sda", tarfile.BLKTYPE, devmajor=8).file("f").bytes(),
        {"f"}),
    "untar_devnode_as_whiteout": (lambda o: Tar().add("null", tarfile.CHRTYPE, devmajor=0, devminor=0).file("f").bytes(), {"f"}),
    "untar_write_through_fifo": (lambda o: Tar().add("p", tarfile.FIFOTYPE).file("p", b"data").bytes(), {"p"}),
    "untar_below_a_file": (lambda o: Tar().file("f").file("f/g").bytes(), INVALID),
    "untar_below_a_fifo": (lambda o: Tar().add("p", tarfile.FIFOTYPE).file("p/g").bytes(), INVALID),
    "untar_overlay_xattr": (
        lambda o: Tar().file("f", pax_headers={
            f"SCHILY.xattr.{name}": "y" for name in ("trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy",
                                                     "user.overlay.opaque", "user.overlay.redirect", "security.capability",
                                                     "system.posix_acl_access", "security.selinux")}).bytes(), {"f"}),
    "untar_whiteout_of_nothing": (lambda o: Tar().file("d/.wh.").bytes(), INVALID),
    "untar_whiteout_of_dot": (lambda o: Tar().file("d/.wh..").bytes(), INVALID),
    "untar_whiteout_of_dotdot": (lambda o: Tar().file("d/.wh...").bytes(), INVALID),
    "untar_whiteout_with_slash": (lambda o: Tar().file("d/.wh./victim").bytes(), INVALID),
    "untar_whiteout_through_symlink": (lambda o: Tar().symlink("d", o).file("d/.wh.victim").bytes(), INVALID),
    "untar_opaque_through_symlink": (lambda o: Tar().symlink("d", o).file("d/.wh..wh..opq").bytes(), INVALID),
    "untar_opaque_then_symlink": (lambda o: Tar().file("d/.wh..wh..opq").symlink("d", o).bytes(), {"d"}),
    "untar_whiteout_weird": (
        lambda o: Tar().file("d/.wh..wh.plnk/1.2", b"x").file("d/.wh..wh.aufs").directory("d/.wh..wh.orph").file("f").bytes(), {"d", "f"}),
    "untar_whiteout_below_a_file": (lambda o: Tar().file("f").file("f/.wh.g").file("f/d/.wh..wh..opq").bytes(), {"f"}),
    "untar_whiteout_below_a_symlink_to_a_file": (lambda o: Tar().file("f").symlink("s", "f").file("s/.wh.g").bytes(), INVALID),
    "untar_hardlink_to_whiteout": (lambda o: Tar().file(".wh.a").hardlink("b", "a").bytes(), INVALID),
    "untar_whiteout_as_directory": (lambda o: Tar().directory("d/.wh.x").file("d/.wh.x/f").bytes(), INVALID),
    "untar_negative_owner": (lambda o: pax("f", uid="-1"), INVALID),
    "untar_empty_name": (lambda o: Tar().raw(header(b"", b"0", 0)).bytes(), INVALID),
    "untar_nul_in_pax_path": (lambda o: pax("innocent", path="a\0/../../evil"), {"a"}),
    "untar_name_of_line_feeds": (lambda o: Tar().file("a\nerror\nend\n", b"x").bytes(), {"a\nerror\nend\n"}),
    "untar_cut_off": (lambda o: Tar().file("f", bytes(8192)).bytes()[:4096], CORRUPT),
    "untar_cut_in_header": (lambda o: Tar().file("f").bytes()[:300], CORRUPT),
    "untar_no_tar": (lambda o: b"x" * 8192, CORRUPT),
    "untar_wrong_checksum": (lambda o: header(b"f", b"0", 0)[:148] + b"0000000\0" + header(b"f", b"0", 0)[156:] + bytes(1024), CORRUPT),
    "untar_wrong_checksum_later": (
        lambda o: Tar().file("f", b"x").bytes()[:1024] + header(b"g", b"0", 0)[:148] + b"0000000\0" + header(b"g", b"0", 0)[156:] +
        bytes(1024), CORRUPT),
    "untar_size_of_minus_one": (lambda o: header(b"f", b"0", (1 << 88) - 1) + bytes(1024), (CORRUPT, INVALID, LARGE)),
    "bomb_sparse_old": (lambda o: old_sparse(1 << 62), (LARGE, CORRUPT)),
    "bomb_sparse_pax": (
        lambda o: Tar().file("f", b"0\n".ljust(512, b"\0"), pax_headers={
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 42), "GNU.sparse.name": "f"}).bytes(), LARGE),
    "bomb_sparse_map": (
        lambda o: Tar().file("f", b"99999999\n".ljust(512, b"\0"), pax_headers={
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4096", "GNU.sparse.name": "f"}).bytes(), CORRUPT),
    "bomb_size": (lambda o: header(b"f", b"0", 1 << 45) + bytes(1024), LARGE),
    "bomb_long_name": (lambda o: Tar().file("n" * 256).bytes(), LARGE),
    "bomb_long_path": (lambda o: Tar().file("/".join(["n" * 250] * 17)).bytes(), LARGE),
    "bomb_depth": (lambda o: Tar().file("d/" * 129 + "f").bytes(), LARGE),
    "bomb_xattr": (lambda o: pax("f", SCHILY__xattr__user__x="x" * 70_000), LARGE),
    "bomb_many_xattrs": (lambda o: Tar().file("f", pax_headers={f"SCHILY.xattr.user.{i}": "x" for i in range(65)}).bytes(), LARGE),
    "bomb_pax_header_that_claims": (lambda o: Tar().raw(header(b"x", b"x", 1 << 40)).file("f").bytes(), CORRUPT),
    "bomb_pax_header": (lambda o: pax("f", comment=os.urandom(1 << 19).hex() * 4), CORRUPT),
    "bomb_gnu_long_name_that_claims": (lambda o: gnu_long(b"L", b"x", 1 << 40), CORRUPT),
    "bomb_gnu_long_name": (lambda o: gnu_long(b"L", os.urandom(1 << 20).hex().encode() + b"\0"), (LARGE, CORRUPT)),
    "bomb_headers_without_an_entry": (lambda o: (header(b"x", b"x", 11) + b"11 a=bcdef\n".ljust(512, b"\0")) * 60_000 + bytes(1024),
                                      INVALID),
    "bomb_one_name": (lambda o: Tar().raw(b"".join(header(b"f", b"0", 0) for _ in range(20_000))).bytes(), {"f"}),
}


class HostileImages(DaemonCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.state = cls.daemon.dir / "state"
        cls.outside = cls.daemon.dir / "canary"
        cls.outside.mkdir()
        (cls.outside / "victim").write_text("precious")
        (cls.outside / "victim").chmod(0o640)
        (cls.outside / "below").mkdir()
        (cls.outside / "link").symlink_to("victim")
        os.setxattr(cls.outside / "victim", "user.note", b"kept")

    def setUp(self):
        super().setUp()
        self.work = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.dir))
        self.addCleanup(shutil.rmtree, self.work)
        self.before = self.host()

    def host(self):
        """What must not change: the tree outside, what stands beside it and above it, and the names in the store."""
        return (tree(self.outside), sorted(os.listdir(self.daemon.dir)), sorted(os.listdir("/")), sorted(os.listdir(self.state)),
                sorted(os.listdir(self.state / "layers")), sorted(os.listdir(self.state / "images/blobs/sha256")),
                (self.state / "images/index.json").read_text())

    def imported(self, layout):
        """The error's code, or the paths of the topmost layer; the image is removed."""
        status, _, body = self.client.raw("POST", "/v1/images/import", {"path": layout, "reference": "hostile:latest"})
        reply = json.loads(body)
        if status >= 400:
            return reply["error"]["code"], reply["error"]["message"]
        hexes = set(os.listdir(self.state / "layers")) - set(self.before[4])
        self.assertLessEqual(len(hexes), 1)
        paths = {os.fsdecode(path) for name in hexes for path in tree(self.state / "layers" / name / "fs")} - {"."}
        self.client.call("DELETE", "/v1/images/hostile:latest")
        return paths, ""

    def check(self, data, outcome):
        outcomes = set()
        for how in COMPRESSIONS:
            with self.subTest(compression=how):
                layout = Layout(self.work / how).add(data, how).finish()
                came, message = self.imported(layout)
                allowed = outcome if isinstance(outcome, tuple) else (outcome,)
                self.assertIn(came, allowed, message)
                if message:
                    self.assertIn("layer sha256:", message)
                outcomes.add(str(came))
                self.assertEqual(self.host(), self.before)
        self.assertEqual(len(outcomes), 1, "one outcome whatever the compression")

    def test_the_daemon_goes_on(self):
        self.assertEqual(self.client.output(self.sandbox(), "echo fine"), "fine\n")

    # --- what is not in the bytes of one layer

    def test_untar_overlay_xattr_leaves_nothing(self):
        layout = Layout(self.work / "l").add(CORPUS["untar_overlay_xattr"][0](""), "gzip").finish()
        self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "hostile:latest"})
        (name,) = set(os.listdir(self.state / "layers")) - set(self.before[4])
        self.assertEqual(os.listxattr(self.state / "layers" / name / "fs/f"), [])
        self.client.call("DELETE", "/v1/images/hostile:latest")

    def test_bomb_ratio(self):
        data = Tar().file("zeros", bytes(100 << 20)).bytes()
        for how in ("gzip", "zstd"):
            came, message = self.imported(Layout(self.work / how).add(data, how).finish())
            self.assertEqual(came, LARGE, message)
            self.assertEqual(self.host(), self.before)

    def test_bomb_in_a_bomb(self):
        """Compressed twice: the ratio counts from the outermost bytes."""
        packed = compress(compress(Tar().file("zeros", bytes(80 << 20)).bytes(), "gzip"), "gzip")
        layout = Layout(self.work / "l")
        layout.add(packed)
        layout.diff_ids = ["sha256:" + hashlib.sha256(gzip.decompress(packed)).hexdigest()]
        came, message = self.imported(layout.finish())
        self.assertIn(came, (LARGE, CORRUPT), message)
        self.assertEqual(self.host(), self.before)

    def test_bomb_entries(self):
        """Names that are ignored cost the unpacker nothing but their header, and are counted."""
        plain = self.work / "plain"
        whole = hashlib.sha256()
        block = header(b".wh..wh.plnk/1", b"0", 0) * 8192
        with open(plain, "wb") as out:
            for start in range(0, MANY, 8192):
                piece = block[:512 * min(8192, MANY - start)]
                out.write(piece)
                whole.update(piece)
            out.write(bytes(1024))
            whole.update(bytes(1024))
        diff_id = "sha256:" + whole.hexdigest()
        for how, tool in (("gzip", ["gzip", "-1"]), ("zstd", ["zstd", "-q"]), ("none", None)):
            packed = self.work / ("packed." + how)
            if tool:
                with open(plain, "rb") as source, open(packed, "wb") as out:
                    subprocess.run([*tool, "-c"], stdin=source, stdout=out, check=True)
            else:
                plain.rename(packed)
            came, message = self.imported(Layout(self.work / how).add_file(packed, diff_id).finish())
            shutil.rmtree(self.work / how)
            self.assertEqual(came, LARGE, message)
            self.assertEqual(self.host(), self.before)

    def test_bytes_that_do_not_decompress(self):
        """Each ends with an answer: an unpacker that fails half-way must not leave anybody waiting."""
        good = Tar().file("f", os.urandom(300_000)).bytes()
        for how, magic in (("gzip", 2), ("zstd", 4)):
            packed = compress(good, how)
            for data in (packed[:len(packed) // 2], packed[:magic + 8] + bytes(1000), packed[:-1],
                         packed[:1000] + b"\xff" * 64 + packed[1064:]):
                layout = Layout(self.work / f"{how}-{hashlib.sha256(data).hexdigest()[:8]}")
                layout.add(data)
                layout.diff_ids = ["sha256:" + hashlib.sha256(good).hexdigest()]
                came, message = self.imported(layout.finish())
                self.assertEqual(came, CORRUPT, message)
                self.assertEqual(self.host(), self.before)

    def test_other_compressions_are_refused(self):
        good = Tar().file("f", b"x").bytes()
        for tool in ("xz", "bzip2"):
            packed = subprocess.run([tool, "-c"], input=good, stdout=subprocess.PIPE, check=True).stdout
            layout = Layout(self.work / tool)
            layout.add(packed)
            layout.diff_ids = ["sha256:" + hashlib.sha256(good).hexdigest()]
            came, message = self.imported(layout.finish())
            self.assertEqual(came, CORRUPT, message)
            self.assertEqual(self.host(), self.before)

    def test_layers_that_lie_about_others(self):
        """A whiteout, an opaque mark or a link in the upper layer acts below the root of its own layer only."""
        lower = Tar().symlink("d", str(self.outside)).file("keep").bytes()
        for name, upper in (("write", Tar().file("d/victim", b"evil").bytes()), ("whiteout", Tar().file("d/.wh.victim").bytes()),
                            ("opaque", Tar().file("d/.wh..wh..opq").bytes())):
            layout = Layout(self.work / name).add(lower).add(upper, "gzip").finish()
            self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "hostile:latest"})
            self.client.call("DELETE", "/v1/images/hostile:latest")
            self.assertEqual(self.host(), self.before)

    def test_setuid_inert(self):
        """Set-id bits and file capabilities of an image give its tenants nothing."""
        subprocess.run([str(MAKE_IMAGE), str(self.work)], check=True, stdout=subprocess.DEVNULL)
        busybox = pathlib.Path(shutil.which("busybox")).read_bytes()
        capability = "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"
        upper = Tar().directory("bin").file("bin/busybox-suid", busybox, mode=0o6755).file(
            "bin/busybox-caps", busybox, mode=0o755, pax_headers={"SCHILY.xattr.security.capability": capability.encode("latin-1").decode("utf-8", "surrogateescape")})
        base = Tar().file("bin/busybox", busybox, mode=0o755).symlink("bin/sh", "busybox").directory("tmp", mode=0o1777)
        layout = Layout(self.work / "l").add(base.bytes(), "zstd").add(upper.bytes(), "gzip").finish(config={"User": "1000:1000"})
        self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "hostile:latest"})
        sandbox = self.client.create(image="hostile:latest")["id"]
        listing = self.client.output(sandbox, "/bin/busybox ls -ln /bin/busybox-suid")
        self.assertTrue(listing.startswith("-rwsr-sr-x"), listing)
        for program in ("suid", "caps"):
            self.assertEqual(self.client.exec(sandbox, [f"/bin/busybox-{program}", "id", "-u"])["stdout"].strip(), "1000", program)
            status = self.client.exec(sandbox, [f"/bin/busybox-{program}", "cat", "/proc/self/status"])["stdout"]
            for line in status.splitlines():
                if line.startswith(("CapEff", "CapPrm", "CapAmb")):
                    self.assertEqual(int(line.split()[1], 16), 0, line)
        self.client.delete(sandbox)
        self.client.call("DELETE", "/v1/images/hostile:latest")

    def test_bomb_archive_around_the_image(self):
        """The same walls stand around an archive that a whole image is in."""
        inner = self.work / "inner.tar"
        with tarfile.open(inner, "w") as out:
            info = tarfile.TarInfo("index.json")
            info.size = 0
            out.addfile(info)
            info = tarfile.TarInfo("../../canary/victim")
            out.addfile(info)
        for path, codes in ((self.zeros("gzip"), (LARGE,)), (self.zeros("zstd"), (LARGE,)), (inner, (INVALID,))):
            came, message = self.imported(str(path))
            self.assertIn(came, codes, message)
            self.assertEqual(self.host(), self.before)

    def zeros(self, how):
        path = self.work / f"zeros.{how}"
        path.write_bytes(compress(Tar().file("index.json", bytes(100 << 20)).bytes(), how))
        return path

    def test_links_of_an_archive_lead_nowhere_else(self):
        for target in (str(self.outside / "victim"), "../../../../canary/victim", "/etc/passwd", "index.json"):
            data = Tar().symlink("index.json", target).bytes()
            path = self.work / "links.tar"
            path.write_bytes(data)
            came, _ = self.imported(str(path))
            self.assertEqual(came, "not_found", target)
            self.assertEqual(self.host(), self.before)

    def test_layer_types_that_are_none(self):
        good = Tar().file("f", b"x").bytes()
        for media_type in (LAYER + "+encrypted", "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "text/plain",
                           "application/vnd.oci.image.layer.nondistributable.v1.tar",
                           "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"):
            layout = Layout(self.work / hashlib.sha256(media_type.encode()).hexdigest()[:8]).add(good, media_type=media_type)
            came, message = self.imported(layout.finish())
            self.assertEqual(came, "unsupported", message)
            self.assertIn(media_type, message)
            self.assertEqual(self.host(), self.before)


def add_cases():
    for name, (make, outcome) in CORPUS.items():
        def case(self, make=make, outcome=outcome):
            outside = str(self.outside)
            self.check(make(outside), outcome(outside) if callable(outcome) else outcome)
        setattr(HostileImages, "test_" + name, case)


add_cases()

if __name__ == "__main__":
    unittest.main()
