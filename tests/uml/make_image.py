#!/usr/bin/env python3
"""Writes an OCI image layout of one layer: make_image.py ROOT_DIRECTORY LAYOUT_DIRECTORY. Nothing but Python's own library."""
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def blob(layout, data, media_type):
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def layer_bytes(root):
    def as_root(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=as_root)
    return out.getvalue()


def main(root, layout):
    (layout / "blobs/sha256").mkdir(parents=True)
    layer = layer_bytes(root)
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"]},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": blob(layout, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
                "layers": [blob(layout, layer, "application/vnd.oci.image.layer.v1.tar")]}
    described = blob(layout, json.dumps(manifest).encode(), manifest["mediaType"])
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
