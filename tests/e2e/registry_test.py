"""Images pulled from Debian's docker-registry on loopback, put there by skopeo, umoci and buildah, and run."""
import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

from client import ApiError
from daemon import MAKE_IMAGE, Daemon, DaemonCase, wait_until

FAKE_REGISTRY = pathlib.Path(__file__).resolve().parent.parent / "support" / "fake_registry.py"
GIB = 1 << 30
LAYERS = 60
PASSWORD = "correct-horse-battery"
NO_PROXY = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, env=NO_PROXY, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr.decode()[-2000:]}")
    return done.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Layout:
    """An OCI image layout, written blob by blob."""

    def __init__(self, directory):
        self.blobs = pathlib.Path(directory, "blobs/sha256")
        self.blobs.mkdir(parents=True)
        pathlib.Path(directory, "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}+json", "digest": f"sha256:{digest}", "size": len(data)}

    def json(self, value, kind):
        return self.blob(json.dumps(value).encode(), kind)

    def layer(self, files):
        """A gzip layer of {name: bytes}, and its diffID."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        descriptor = self.blob(gzip.compress(plain.getvalue(), 1), "layer.v1.tar")
        descriptor["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip"
        return descriptor, "sha256:" + hashlib.sha256(plain.getvalue()).hexdigest()


def read_layout(directory):
    """(manifest, configuration) of a layout of one image."""
    directory = pathlib.Path(directory)

    def read(digest):
        return json.loads((directory / "blobs/sha256" / digest.removeprefix("sha256:")).read_text())

    manifest = read(json.loads((directory / "index.json").read_text())["manifests"][0]["digest"])
    return manifest, read(manifest["config"]["digest"])


def write_many_layers(busybox, directory):
    """busybox below, and small layers on it up to LAYERS."""
    shutil.copytree(busybox, directory, ignore=lambda *_: ["index.json"])
    manifest, config = read_layout(busybox)
    shutil.rmtree(directory / "blobs")
    layout = Layout(directory)
    for path in (busybox / "blobs/sha256").iterdir():
        shutil.copy(path, layout.blobs)
    while len(manifest["layers"]) < LAYERS:
        number = len(manifest["layers"])
        descriptor, diff_id = layout.layer({f"layer-{number}": f"{number}\n".encode(), "last": f"{number}\n".encode()})
        manifest["layers"].append(descriptor)
        config["rootfs"]["diff_ids"].append(diff_id)
    config.pop("history", None)
    manifest["config"] = layout.json(config, "config.v1")
    index = {"schemaVersion": 2, "manifests": [layout.json(manifest, "manifest.v1")]}
    (directory / "index.json").write_text(json.dumps(index))


def write_platforms(busybox, directory):
    """An index of busybox for this machine and of the same bytes that say they are for two others."""
    shutil.copytree(busybox, directory)
    own, config = read_layout(busybox)
    here = config["architecture"]
    layout = Layout.__new__(Layout)
    layout.blobs = directory / "blobs/sha256"
    manifests = []
    for architecture in ("s390x", here, "riscv64"):
        manifest = {**own, "config": layout.json({**config, "architecture": architecture}, "config.v1")}
        manifests.append({**layout.json(manifest, "manifest.v1"), "platform": {"os": "linux", "architecture": architecture}})
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    outer = {"schemaVersion": 2, "manifests": [layout.json(index, "index.v1")]}
    (directory / "index.json").write_text(json.dumps(outer))
    return manifests[1]["digest"]


def write_large_file(path, size):
    """Repeats itself within gzip's window, but not so much that it would be taken for a decompression bomb."""
    generator = random.Random(1)
    pattern = generator.randbytes(15 << 10)
    with open(path, "wb") as out:
        for _ in range(size >> 20):
            out.write(b"".join(generator.randbytes(1 << 10) + pattern for _ in range(64)))


class Registry:
    """docker-registry on a port of its own, below `directory`."""

    def __init__(self, directory, *, tls=None, htpasswd=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        self.host = f"127.0.0.1:{free_port()}"
        self.certs = ["--dest-cert-dir", tls.parent] if tls else ["--dest-tls-verify=false"]
        http = {"addr": self.host, "secret": "x"}
        if tls:
            http["tls"] = {"certificate": str(tls), "key": str(tls.parent / "key.pem")}
        config = {"version": "0.1", "storage": {"filesystem": {"rootdirectory": str(self.directory / "data")}}, "http": http}
        if htpasswd:
            config["auth"] = {"htpasswd": {"realm": "here", "path": str(htpasswd)}}
        (self.directory / "config.yml").write_text(json.dumps(config))  # which YAML is more than
        self.log = self.directory / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", self.directory / "config.yml"], stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, env=NO_PROXY)
        wait_until(self.answers, "the registry answers")

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text()[-2000:])
        with contextlib.suppress(OSError), socket.create_connection(self.host.split(":")):
            return True
        return False

    def close(self):
        self.process.kill()
        self.process.wait()

    def push(self, source, name, *options):
        run("skopeo", "copy", "--insecure-policy", "-q", *self.certs, *options, source, f"docker://{self.host}/{name}")

    def requests(self):
        """Those for manifests and blobs, as "METHOD uri"."""
        found = []
        for line in self.log.read_text().splitlines():
            fields = dict(part.split("=", 1) for part in line.split(" ") if "=" in part)
            if "http.response.status" in fields and "http.request.uri" in fields:
                found.append(fields["http.request.method"] + " " + fields["http.request.uri"].strip('"'))
        return found


class Registries(DaemonCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="hutch-registry-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.plain = Registry(cls.work / "plain")
        cls.addClassCleanup(cls.plain.close)
        cls.make_private()
        cls.config = {"registries": {"plain_http": [cls.plain.host], "certs_dir": str(cls.work / "certs"),
                                     "auth_file": str(cls.work / "auth.json")}}
        super().setUpClass()
        for compression in ("gzip", "zstd"):
            (cls.work / compression).mkdir()
            run(MAKE_IMAGE, cls.work / compression, "--two-layers", f"--{compression}")
        cls.busybox = cls.work / "gzip/busybox"
        cls.plain.push(f"oci:{cls.busybox}:busybox:latest", "base/busybox:1")

    @classmethod
    def make_private(cls):
        """A registry with TLS of a CA of its own, and users."""
        tls = cls.work / "tls"
        tls.mkdir()
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=registry test", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", tls / "key.pem", "-out", tls / "ca.crt")
        (cls.work / "htpasswd").write_bytes(run("htpasswd", "-Bbn", "me", PASSWORD))
        cls.private = Registry(cls.work / "private", tls=tls / "ca.crt", htpasswd=cls.work / "htpasswd")
        cls.addClassCleanup(cls.private.close)
        host = cls.work / "certs" / cls.private.host
        host.mkdir(parents=True)
        shutil.copy(tls / "ca.crt", host)
        # skopeo takes *.cert in the directory for a client's.
        cls.private.certs = ["--dest-cert-dir", host, "--dest-creds", f"me:{PASSWORD}"]

    def pull(self, reference, **fields):
        return self.client.call("POST", "/v1/images/pull", {"reference": reference, **fields})

    def pull_events(self, reference):
        headers = {"Accept": "application/x-ndjson"}
        _, _, lines = self.client.raw("POST", "/v1/images/pull", {"reference": reference}, headers)
        return [json.loads(line) for line in lines.splitlines()]

    def run_in(self, image, command):
        box = self.sandbox(image=image)
        result = self.client.exec(box, command)
        self.client.delete(box)
        return result["stdout"]

    # --- what others write
    def test_gzip_and_zstd_and_both_kinds_of_manifest(self):
        ids = set()
        for compression, options in (("gzip", []), ("zstd", []), ("gzip", ["--format", "v2s2"])):
            name = f"{self.plain.host}/kinds/busybox:{compression}{len(options)}"
            self.plain.push(f"oci:{self.work / compression}/busybox:busybox:latest", name.split("/", 1)[1], *options)
            ids.add(self.pull(name)["id"])
            self.assertEqual(self.run_in(name, "cat /etc/motd; echo done").splitlines()[-1], "done")
        self.assertEqual(len(ids), 3)

    def test_a_second_pull_asks_for_the_manifest_only(self):
        name = f"{self.plain.host}/base/busybox:1"
        first = self.pull(name)
        before = len(self.plain.requests())
        self.assertEqual(self.pull(name)["id"], first["id"])
        wait_until(lambda: len(self.plain.requests()) > before, "the registry has logged it")
        self.assertEqual(self.plain.requests()[before:], ["GET /v2/base/busybox/manifests/1"])
        by_digest = f"{self.plain.host}/base/busybox@{first['id']}"
        self.assertEqual(self.pull(by_digest)["id"], first["id"])
        self.assertIn(by_digest, self.client.call("GET", f"/v1/images/{first['id']}")["references"])

    def test_of_an_index_this_machines_image(self):
        digest = write_platforms(self.busybox, self.work / "platforms")
        self.plain.push(f"oci:{self.work / 'platforms'}", "multi/busybox:all", "--all")
        name = f"{self.plain.host}/multi/busybox:all"
        self.assertEqual(self.pull(name)["id"], digest)
        self.assertEqual(self.run_in(name, "echo $((6 * 7))"), "42\n")

    def test_many_layers(self):
        write_many_layers(self.busybox, self.work / "many")
        self.plain.push(f"oci:{self.work / 'many'}", "many/layers:1")
        name = f"{self.plain.host}/many/layers:1"
        events = self.pull_events(name)
        self.assertIn("result", json.dumps(events[-1]))
        text = json.dumps(events)
        for stage in ("resolve", "download", "unpack"):
            self.assertIn(stage, text)
        self.assertEqual(self.run_in(name, "cat /last; ls / | grep -c layer-"), f"{LAYERS - 1}\n{LAYERS - 2}\n")

    def test_a_large_layer(self):
        size = GIB if shutil.disk_usage(self.work).free > 8 * GIB else GIB // 16
        content = self.work / "large.d"
        content.mkdir()
        write_large_file(content / "large", size)
        layout = self.work / "large"
        shutil.copytree(self.busybox, layout)
        run("umoci", "insert", "--image", f"{layout}:busybox:latest", content / "large", "/large")
        digest = hashlib.sha256((content / "large").read_bytes()).hexdigest()
        (content / "large").unlink()
        self.plain.push(f"oci:{layout}:busybox:latest", "large/file:1")
        shutil.rmtree(layout)
        name = f"{self.plain.host}/large/file:1"
        before = len(self.plain.requests())
        image = self.pull(name)["id"]
        # The layers of busybox may be here; the large one came in one go.
        self.assertLessEqual(len(self.plain.requests()) - before, 5)
        self.assertEqual(self.run_in(name, "sha256sum /large").split()[0], digest)
        self.client.call("DELETE", f"/v1/images/{image}")

    def test_what_buildah_builds(self):
        store = ["--root", self.work / "buildah", "--runroot", self.work / "buildah-run", "--storage-driver", "vfs"]
        container = run("buildah", *store, "from", "scratch").decode().strip()
        root = pathlib.Path(run("buildah", *store, "mount", container).decode().strip())
        (root / "bin").mkdir()
        shutil.copy(shutil.which("busybox"), root / "bin/sh")
        (root / "made-by").write_text("buildah\n")
        run("buildah", *store, "umount", container)
        run("buildah", *store, "config", "--user", "1000:1000", "--cmd", "/bin/sh", container)
        run("buildah", *store, "commit", "-q", container, "built")
        run("buildah", *store, "push", "--tls-verify=false", "built", f"docker://{self.plain.host}/built/it:1")
        name = f"{self.plain.host}/built/it:1"
        self.pull(name)
        self.assertEqual(self.run_in(name, ["/bin/sh", "-c", "read x </made-by; echo $x"]), "buildah\n")

    # --- TLS and users
    def test_a_private_ca_and_a_password(self):
        self.private.push(f"oci:{self.busybox}:busybox:latest", "secret/busybox:1")
        name = f"{self.private.host}/secret/busybox:1"
        error = self.refused("forbidden", "POST", "/v1/images/pull", {"reference": name})
        self.assertIn(self.private.host, error["message"])
        with self.assertRaises(ApiError) as caught:
            self.pull(name, username="me", password="not-it-at-all")
        self.assertEqual(caught.exception.code, "forbidden")
        self.assertNotIn("not-it-at-all", str(caught.exception))
        self.pull(name, username="me", password=PASSWORD)
        # Not kept for the next time.
        self.refused("forbidden", "POST", "/v1/images/pull", {"reference": f"{self.private.host}/secret/busybox:2"})
        auth = self.work / "auth.json"
        auth.write_text(json.dumps({"auths": {self.private.host: {"auth": base64.b64encode(f"me:{PASSWORD}".encode()).decode()}}}))
        auth.chmod(0o644)
        error = self.refused("forbidden", "POST", "/v1/images/pull", {"reference": name})
        self.assertIn("auth.json", error["message"])
        auth.chmod(0o600)
        self.assertEqual(self.run_in(self.pull(name)["id"], "echo in"), "in\n")
        auth.unlink()
        log = self.daemon.log.read_text()
        for secret in (PASSWORD, "not-it-at-all", base64.b64encode(f"me:{PASSWORD}".encode()).decode()):
            self.assertNotIn(secret, log)

    def test_tls_is_not_left_out(self):
        self.refused("unavailable", "POST", "/v1/images/pull", {"reference": f"localhost:{self.plain.host.split(':')[1]}/base/busybox:1"})
        # Asked for by the client, for this pull.
        name = f"localhost:{self.plain.host.split(':')[1]}/base/busybox:1"
        self.assertIn(name, self.pull(name, plain_http=True)["references"])

    # --- what is not there
    def test_errors_are_the_registrys_own(self):
        error = self.refused("not_found", "POST", "/v1/images/pull", {"reference": f"{self.plain.host}/base/busybox:none"})
        self.assertIn("MANIFEST_UNKNOWN", error["message"])
        self.refused("not_found", "POST", "/v1/images/pull", {"reference": f"{self.plain.host}/no/such/thing"})
        self.refused("invalid_argument", "POST", "/v1/images/pull", {"reference": f"{self.plain.host}/Upper"})


class Interrupted(unittest.TestCase):
    def test_the_next_daemon_goes_on_where_one_was_killed(self):
        with contextlib.ExitStack() as stack:
            work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run(MAKE_IMAGE, work)
            (work / "busybox").rename(work / "layout")
            server = stack.enter_context(subprocess.Popen([sys.executable, FAKE_REGISTRY, work], stdin=subprocess.PIPE,
                                                          stdout=subprocess.PIPE, text=True))
            stack.callback(server.kill)
            host = "127.0.0.1:" + server.stdout.readline().split()[0]
            layer = read_layout(work / "layout")[0]["layers"][0]
            rules = [{"match": f"blobs/{layer['digest']}", "close_after": layer["size"] // 2, "then_stall": 600}]
            (work / "rules.json").write_text(json.dumps(rules))
            daemon = Daemon(config={"registries": {"plain_http": [host]}}).start()
            stack.callback(daemon.close)
            body = {"reference": f"{host}/test/busybox:1"}
            threading.Thread(target=self.ask, args=(daemon, body), daemon=True).start()
            downloads = daemon.dir / "state/downloads"
            parts = lambda: list(downloads.glob(layer["digest"].removeprefix("sha256:") + "-*.part"))
            wait_until(lambda: any(part.stat().st_size == layer["size"] // 2 for part in parts()), "half of the layer is here")
            daemon.kill()
            (work / "rules.json").write_text("[]")
            daemon.start()
            with contextlib.closing(daemon.client()) as client:
                self.assertEqual(client.call("GET", "/v1/images")["images"], [])
                client.call("POST", "/v1/images/pull", body)
                box = client.create(image=body["reference"])["id"]
                self.assertEqual(client.exec(box, "echo whole")["stdout"], "whole\n")
            self.assertEqual(parts(), [])
            asked = [json.loads(line) for line in (work / "requests.log").read_text().splitlines()]
            self.assertEqual([r["range"] for r in asked if layer["digest"] in r["path"]], ["", f"bytes={layer['size'] // 2}-"])

    @staticmethod
    def ask(daemon, body):
        with contextlib.suppress(OSError, ApiError), contextlib.closing(daemon.client()) as client:
            client.call("POST", "/v1/images/pull", body)


if __name__ == "__main__":
    unittest.main()
