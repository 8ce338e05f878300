"""What internet.py serves under the names of package mirrors: one wheel, one npm package, one Debian package, one git repository."""
import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

SAMPLE = "hutch-sample"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def make_pypi(top):
    wheel, name = io.BytesIO(), "hutch_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hutch_sample.py", "print('from the wheel')\n")
        archive.writestr("hutch_sample-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {SAMPLE}\nVersion: 1.0\n")
        archive.writestr("hutch_sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("hutch_sample-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    write(top / "files" / name, wheel.getvalue())
    write(top / "simple/index.html", f'<!DOCTYPE html><a href="{SAMPLE}/">{SAMPLE}</a>')
    write(top / "simple" / SAMPLE / "index.html", f'<!DOCTYPE html><a href="/files/{name}#sha256={digest}">{name}</a>')


def make_npm(top):
    package = {"name": SAMPLE, "version": "1.0.0", "main": "index.js"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in (("package.json", json.dumps(package)), ("index.js", "console.log('from the package')\n")):
            info = tarfile.TarInfo("package/" + name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data.encode()))
    data = packed.getvalue()
    dist = {"tarball": f"https://npm.test/files/{SAMPLE}-1.0.0.tgz", "shasum": hashlib.sha1(data).hexdigest(),
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    write(top / "files" / f"{SAMPLE}-1.0.0.tgz", data)
    write(top / SAMPLE, json.dumps({"name": SAMPLE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}))


def make_deb(top, work):
    tree = work / "deb"
    write(tree / "usr/share/hutch-sample/text", "from the package\n")
    control = f"Package: {SAMPLE}\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@deb.test>\nDescription: a sample\n"
    write(tree / "DEBIAN/control", control)
    place = top / "debian"
    place.mkdir(parents=True)
    file = place / f"{SAMPLE}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(file)], check=True, stdout=subprocess.DEVNULL)
    data = file.read_bytes()
    packages = control + f"Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    write(place / "Packages", packages)
    write(place / "Release", f"Suite: test\nDate: Tue, 14 Nov 2023 22:13:20 UTC\nSHA256:\n {hashlib.sha256(packages.encode()).hexdigest()} {len(packages)} Packages\n")


def make_git(top, work):
    """For the plain protocol: files and nothing else."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@git.test",
                   "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@git.test"}

    def git(*words):
        subprocess.run(["git", *words], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    tree = work / "git"
    write(tree / "README", "from the repository\n")
    git("-C", str(tree), "init", "-q", "-b", "main")
    git("-C", str(tree), "add", "README")
    git("-C", str(tree), "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", str(tree), str(top / "sample.git"))
    git("-C", str(top / "sample.git"), "update-server-info")


def make(www, work):
    make_pypi(www / "pypi.test")
    make_npm(www / "npm.test")
    make_deb(www / "deb.test", work)
    make_git(www / "git.test", work)
