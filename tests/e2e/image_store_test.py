"""Images between programs and hosts: saved, loaded, named, told about, pruned; and shared by many sandboxes."""
import hashlib
import http.client
import io
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tarfile
import tempfile
import time
import unittest

from cli import HUTCH, CliCase
from client import ApiError
from daemon import wait_until
from images import Layout, Tar, tree

LARGE = 64 << 20


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr.decode()}")
    return done.stdout.decode()


class ImageStore(CliCase):
    def setUp(self):
        super().setUp()
        self.work = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.dir))
        self.addCleanup(shutil.rmtree, self.work)
        self.layers = self.daemon.dir / "state/layers"

    def clean(self):
        self.daemon.remove_all()
        for image in self.client.call("GET", "/v1/images")["images"]:
            for name in set(image["references"]) - {"busybox:latest"} or {image["id"]}:
                if "busybox:latest" not in image["references"] or name != image["id"]:
                    self.client.call("DELETE", "/v1/images/" + name)
        super().clean()

    def two_layers(self, name="two:1", **config):
        lower = Tar().directory("d").file("d/gone").file("d/kept", b"1", uid=7, mode=0o4755, pax_headers={"SCHILY.xattr.user.a": "b"})
        upper = Tar().file("d/.wh.gone").file("d/new", b"2").hardlink("d/hard", "d/new")
        layout = Layout(self.work / hashlib.sha256(name.encode()).hexdigest()[:8]).add(lower.bytes(), "gzip").add(upper.bytes(), "zstd")
        return self.client.call("POST", "/v1/images/import", {"path": layout.finish(name=name, **config), "reference": name})

    def trees(self, name):
        image = self.client.call("GET", "/v1/images/" + name)
        trees = [tree(self.layers / layer["diff_id"][7:] / "fs", ("user.", "trusted.overlay.opaque")) for layer in image["layer_list"]]
        # Of a whiteout nothing but its place means anything.
        return [{path: "whiteout" if stat.S_ISCHR(entry[0]) else entry for path, entry in found.items()} for found in trees]

    # --- archives

    def test_what_is_saved_loads_as_the_same_trees_everywhere(self):
        self.two_layers(config={"User": "7:8", "Env": ["A=b"]})
        for form in ("oci", "docker"):
            with self.subTest(format=form):
                path = self.work / f"saved.{form}"
                self.text("image", "save", "two:1", "--format", form, "-o", str(path))
                piped = self.hutch("image", "save", "two:1", "--format", form)
                self.assertEqual(piped.stdout, path.read_bytes())
                loaded = self.text("image", "load", "-i", str(path), "--name", f"copy:{form}").strip()
                self.assertEqual(self.trees(f"copy:{form}"), self.trees("two:1"))
                again = self.text("image", "load", "--name", f"again:{form}", stdin=piped.stdout).strip()
                self.assertEqual(again, loaded)
                self.assertEqual(self.client.call("GET", f"/v1/images/copy:{form}")["config"], self.client.call("GET", "/v1/images/two:1")["config"])
                # What was saved once is the same bytes for ever.
                self.text("image", "save", f"copy:{form}", "--format", form, "-o", str(self.work / "second"))
                self.assertEqual(self.layer_names(self.work / "second"), self.layer_names(path))

    @staticmethod
    def layer_names(path):
        with tarfile.open(path) as tar:
            return [member.name for member in tar if member.size > 2000]

    def test_other_programs_take_it(self):
        self.two_layers("docker.io/library/two:1", config={"Env": ["A=b"]})
        oci, docker = self.work / "two.oci", self.work / "two.docker"
        self.text("image", "save", "docker.io/library/two:1", "-o", str(oci))
        self.text("image", "save", "docker.io/library/two:1", "--format", "docker", "-o", str(docker))
        podman = ["podman", "--root", self.work / "graph", "--runroot", self.work / "run", "--storage-driver", "vfs"]
        merged = None
        for path in (oci, docker):
            name = run(*podman, "load", "-q", "-i", path).split()[-1]
            self.assertIn("docker.io/library/two:1", name)
            where = run(*podman, "image", "mount", name).strip()
            found = tree(where)
            del found[b"."]
            run(*podman, "image", "umount", "--force", name)
            self.assertEqual(sorted(path for path in found if path.startswith(b"d/")), [b"d/hard", b"d/kept", b"d/new"])
            self.assertEqual(merged or found, found)
            merged = found
            self.assertEqual(json.loads(run(*podman, "image", "inspect", name))[0]["Config"]["Env"], ["A=b"])
            run(*podman, "rmi", "-af")
        run("skopeo", "--insecure-policy", "copy", "-q", f"oci-archive:{oci}", f"oci:{self.work}/layout:two")
        run("skopeo", "--insecure-policy", "copy", "-q", f"docker-archive:{docker}", f"dir:{self.work}/dir")
        run("umoci", "unpack", "--image", f"{self.work}/layout:two", self.work / "bundle")
        unpacked = tree(self.work / "bundle/rootfs")
        self.assertEqual({path: entry for path, entry in unpacked.items() if path != b"."}, merged)

    def test_saving_takes_no_memory_and_a_cut_is_seen(self):
        layout = Layout(self.work / "l").add(Tar().file("large", os.urandom(LARGE)).bytes())
        self.client.call("POST", "/v1/images/import", {"path": layout.finish(), "reference": "large:1"})
        before = self.daemon.rss_kib()
        with open(self.work / "saved", "wb") as out:
            subprocess.run([HUTCH, "image", "save", "large:1"], stdout=out, env=self.environment(), check=True)
        self.text("image", "load", "-i", str(self.work / "saved"), "--name", "large:2")
        self.assertLess(self.daemon.rss_kib() - before, 20 << 10)
        # A client that goes away in the middle is forgotten.
        fds = self.daemon.fds()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.daemon.socket)
        connection.sendall(b"GET /v1/images/large:1/archive HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertIn(b"Content-Length: %d" % os.path.getsize(self.work / "saved"), connection.recv(4096))
        connection.close()
        wait_until(lambda: self.daemon.fds() <= fds, "the connection's descriptors are closed")

    def test_a_body_that_is_no_image_or_ends_early_leaves_nothing(self):
        before = sorted(os.listdir(self.layers))
        for body, code in ((b"", "not_found"), (b"x" * 100_000, "corrupt"), (Tar().file("a").bytes(), "not_found")):
            with self.assertRaises(ApiError) as caught:
                self.client.call("POST", "/v1/images/load", body, {"Content-Type": "application/x-tar"})
            self.assertIn(caught.exception.code, (code, "invalid_argument", "corrupt"))
            self.assertNotIn("/proc", caught.exception.error["message"])
        fds = self.daemon.fds()
        connection = http.client.HTTPConnection("h")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.daemon.socket)
        connection.putrequest("POST", "/v1/images/load")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders()
        connection.send(b"x" * 5000)
        connection.sock.close()
        wait_until(lambda: self.daemon.fds() <= fds, "the connection's descriptors are closed")
        self.assertEqual(sorted(os.listdir(self.layers)), before)
        self.assertEqual(sorted(os.listdir(self.daemon.dir / "state/images")), ["blobs", "index.json"])
        self.assertEqual(self.refused("too_large", "POST", "/v1/images/load?reference=x", self.claims(1 << 40))["code"], "too_large")
        # Before the body came.
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/images/load?reference=..%2Fx", self.claims(1 << 30))["field"], "reference")

    def claims(self, size):
        class Body(io.RawIOBase):
            def __len__(self):
                return size

            def read(self, *_):
                return b""
        return Body()

    def refused(self, code, method, path, body=None):
        if not isinstance(body, io.RawIOBase):
            return super().refused(code, method, path, body)
        with self.assertRaises(ApiError) as caught:
            self.client.call(method, path, body, {"Content-Length": str(len(body))})
        self.assertEqual(caught.exception.code, code)
        return caught.exception.error

    def test_wrong_requests(self):
        self.refused("not_found", "GET", "/v1/images/nothing/archive")
        self.refused("not_found", "GET", "/v1/images/nothing/history")
        self.refused("invalid_argument", "GET", "/v1/images/busybox/archive?format=zip")
        self.refused("invalid_argument", "POST", "/v1/images/busybox/tag", {"reference": "../up"})
        self.refused("invalid_argument", "POST", "/v1/images/busybox/tag", {})
        self.refused("not_found", "POST", "/v1/images/nothing/tag", {"reference": "x:1"})
        self.refused("invalid_argument", "POST", "/v1/images/prune", {"al": True})

    # --- what is told

    def test_inspect_history_and_sizes(self):
        history = [{"created_by": "ADD lower", "created": "2024-01-02T03:04:05Z"}, {"created_by": "ENV A=b", "empty_layer": True},
                   {"created_by": "RUN\nrm \x1b[31m", "comment": "c"}]
        config = {"Env": ["A=b"], "User": "7", "WorkingDir": "/d", "Entrypoint": ["/e"], "Cmd": ["c"], "ExposedPorts": {"80/tcp": {}},
                  "Volumes": {"/v": {}}, "StopSignal": "SIGINT", "Labels": {"k": "v"}}
        image = self.two_layers(history=history, created="2024-01-02T03:04:05Z", config=config)
        self.two_layers("second:1", config={})  # the same layers in another image
        shown = json.loads(self.text("image", "inspect", "two:1"))
        self.assertEqual(shown["config"], {"env": ["A=b"], "user": "7", "workdir": "/d", "entrypoint": ["/e"], "cmd": ["c"], "exposed_ports": ["80/tcp"],
                                           "volumes": ["/v"], "stop_signal": "SIGINT", "labels": {"k": "v"}})
        self.assertEqual([layer["images"] for layer in shown["layer_list"]], [2, 2])
        self.assertEqual(sum(layer["size_bytes"] for layer in shown["layer_list"]), image["size_bytes"])
        self.assertEqual(shown["used_by"], [])
        sandbox = self.sandbox()
        self.assertEqual(self.client.call("GET", "/v1/images/busybox")["used_by"], [sandbox])
        steps = self.client.call("GET", "/v1/images/two:1/history")["history"]
        self.assertEqual([step["created_by"] for step in steps], ["ADD lower", "ENV A=b", "RUN\nrm \x1b[31m"])
        self.assertEqual([step["diff_id"] for step in steps], [shown["layer_list"][0]["diff_id"], None, shown["layer_list"][1]["diff_id"]])
        listing = self.text("image", "history", "two:1")
        self.assertEqual([line.split()[0] for line in listing.splitlines()][0], "CREATED")
        self.assertLess(listing.index("RUN rm"), listing.index("ADD lower"))
        self.assertNotIn("\x1b", listing)
        listed = {name: image for image in json.loads(self.text("image", "ls", "--json"))["images"] for name in image["references"]}
        self.assertEqual(listed["two:1"]["shared_bytes"], listed["two:1"]["size_bytes"])
        self.assertEqual(listed["two:1"]["unique_bytes"], 0)
        self.assertEqual(listed["busybox:latest"]["unique_bytes"], listed["busybox:latest"]["size_bytes"])
        self.assertEqual(json.loads(self.text("image", "ls", "--json"))["disk_bytes"], listed["two:1"]["size_bytes"] + listed["busybox:latest"]["size_bytes"])

    def test_tag_and_prune(self):
        self.two_layers()
        self.text("image", "tag", "two:1", "docker.io/team/other:2")
        self.assertEqual(self.client.call("GET", "/v1/images/two:1")["references"], ["two:1", "docker.io/team/other:2"])
        sandbox = self.sandbox()
        layout = Layout(self.work / "new").add(Tar().file("new", b"n").bytes()).finish()
        self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "two:1"})
        self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "docker.io/team/other:2"})
        dry = self.text("image", "prune", "--dry-run")
        self.assertIn("would remove", dry)
        self.assertEqual(len(self.client.call("GET", "/v1/images")["images"]), 3)
        said = self.text("image", "prune")
        self.assertEqual(said, dry.replace("would remove", "removed").replace("would be freed", "freed"))
        self.assertIn("2 layers", said)
        self.assertEqual(len(self.client.call("GET", "/v1/images")["images"]), 2)
        everything = json.loads(self.text("image", "prune", "--all", "--json"))
        self.assertEqual([image["references"] for image in everything["kept"]], [["busybox:latest"]])
        self.assertEqual(len(everything["images"]), 1)
        self.assertEqual(self.client.output(sandbox, "echo still here"), "still here\n")
        kinds = [entry["kind"] for entry in self.client.call("GET", "/v1/audit?kind=image_deleted")["entries"]]
        self.assertGreaterEqual(len(kinds), 2)

    # --- sharing

    def test_sandboxes_of_one_image_share_disk_and_memory(self):
        """A file of the image is one file with one page cache, however many sandboxes read it."""
        count = int(os.environ.get("HUTCH_SHARED_SANDBOXES", "20"))
        data = os.urandom(LARGE)
        busybox = pathlib.Path(shutil.which("busybox")).read_bytes()
        base = Tar().file("bin/busybox", busybox, mode=0o755).symlink("bin/sh", "busybox").directory("tmp", mode=0o1777).file("large", data)
        layout = Layout(self.work / "l").add(base.bytes()).finish()
        self.client.call("POST", "/v1/images/import", {"path": layout, "reference": "shared:1"})
        shutil.rmtree(self.work / "l")
        disk = shutil.disk_usage(self.daemon.dir).used
        digest = hashlib.sha256(data).hexdigest()
        self.client.call("POST", "/v1/sandboxes", {"image": "shared:1"})  # what one costs is not what is asked
        cached = self.cached_kib()
        started = time.monotonic()
        for _ in range(count):
            sandbox = self.client.create(image="shared:1", limits={"memory_bytes": 8 << 20, "disk_bytes": 4 << 20})["id"]
            self.assertEqual(self.client.output(sandbox, ["busybox", "sha256sum", "/large"]).split()[0], digest)
        grown_disk, grown_cache = shutil.disk_usage(self.daemon.dir).used - disk, self.cached_kib() - cached
        print(f"\n{count} sandboxes in {time.monotonic() - started:.1f} s; the image has {LARGE >> 20} MiB; "
              f"disk grew by {grown_disk / 2**20:.1f} MiB, page cache by {grown_cache / 1024:.1f} MiB")
        self.assertEqual(len(self.client.call("GET", "/v1/images/shared:1")["used_by"]), count + 1)
        # Far below one more copy for each; other programs of the host write and read meanwhile.
        self.assertEqual(len([name for name in os.listdir(self.layers) if not name.startswith(".")]), 2)
        inside = {self.client.output(sandbox["id"], ["busybox", "stat", "-c", "%i %s", "/large"])
                  for sandbox in self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]}
        (layer,) = [layer for layer in self.client.call("GET", "/v1/images/shared:1")["layer_list"]]
        info = os.stat(self.layers / layer["diff_id"][7:] / "fs/large")
        self.assertEqual(inside, {f"{info.st_ino} {LARGE}\n"})

    @staticmethod
    def cached_kib():
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("Cached:"):
                return int(line.split()[1])
        raise AssertionError("no Cached in /proc/meminfo")


if __name__ == "__main__":
    unittest.main()
