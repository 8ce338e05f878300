"""Runs in the guest of power-cut: looks at what the last cut left, says WORKS, and changes images until the power fails."""
import hashlib
import io
import json
import os
import pathlib
import random
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from daemon import Daemon  # noqa: E402  pylint: disable=wrong-import-position
from images import Layout, Tar  # noqa: E402  pylint: disable=wrong-import-position

ON_DISK = pathlib.Path("/tmp/power")  # /tmp is the block device


class OnDisk(Daemon):
    """Its state directory is the same at every boot; everything else is new."""

    def command(self):
        words = super().command()
        words[words.index("--state-dir") + 1] = str(ON_DISK / "state")
        return words


def content_digest(client, name):
    """Of the one file of the image, read back through an archive of it; None: there is no such image."""
    status, _, archive = client.raw("GET", f"/v1/images/{name}/archive")
    if status == 404:
        return None
    assert status == 200, archive[:300]
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        for member in outer.getmembers():
            blob = outer.extractfile(member).read() if member.isfile() else b""
            try:
                with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
                    return hashlib.sha256(layer.extractfile("d/content").read()).hexdigest()
            except (tarfile.ReadError, KeyError):
                continue
    raise AssertionError(f"{name} has no content")


def verify(client, known):
    names = {name for image in client.call("GET", "/v1/images")["images"] for name in image["references"]}
    for name, possible in known.items():
        found = content_digest(client, name)
        assert found in possible, f"{name} is {found}, not one of {possible}"
        assert (found is not None) == (name in names), f"{name}: {names}"
        print("HAS", name, found or "-", flush=True)
    layers = [path.name for path in (ON_DISK / "state/layers").iterdir()]
    assert not [name for name in layers if name.startswith(".")], f"half-made layers: {layers}"


def work(client, chance):
    names = [f"image-{i}:1" for i in range(4)]
    while True:
        name = chance.choice(names)
        if content_digest(client, name) is not None and chance.random() < 0.5:
            print("TRIES", name, "-", flush=True)
            client.call("DELETE", f"/v1/images/{name}")
            print("HAS", name, "-", flush=True)
            continue
        content = chance.randbytes(chance.choice((10, 5_000, 3_000_000)))
        digest = hashlib.sha256(content).hexdigest()
        with tempfile.TemporaryDirectory(dir="/run") as directory:
            layout = Layout(directory + "/layout").add(Tar().directory("d").file("d/content", content).bytes(), "gzip")
            path = layout.finish(name=name)
            print("TRIES", name, digest, flush=True)
            client.call("POST", "/v1/images/import", {"path": str(path), "reference": name})
        print("HAS", name, digest, flush=True)


def main():
    known, chance = json.loads(pathlib.Path(sys.argv[1]).read_text()), random.Random(sys.argv[2])
    os.environ.setdefault("HUTCHD", "hutchd")
    tempfile.tempdir = "/run"
    ON_DISK.mkdir(exist_ok=True)
    daemon = OnDisk().start()
    client = daemon.client()
    try:
        verify(client, known)
        print("WORKS", flush=True)
        work(client, chance)
    except BaseException as error:  # the one who cuts the power must see it
        print("BROKEN", repr(error), daemon.log.read_text()[-3000:], flush=True)
        raise


if __name__ == "__main__":
    main()
