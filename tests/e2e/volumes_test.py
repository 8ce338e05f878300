"""Volumes: shared by sandboxes, read-only, full, grown, copied, exported and imported; and what is left of them when everybody who used them is gone."""
import contextlib
import io
import json
import pathlib
import tarfile
import threading
import unittest

from cli import CliCase
from client import ApiError
from daemon import OwnDaemonCase, wait_until

MIB = 1 << 20


def loops(daemon):
    """Loop devices over images of this daemon's."""
    found = []
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            # Seen from where a killed hutchd had its mounts the path may be another: the directory is its own.
            if daemon.dir.name in backing.read_text():
                found.append(backing.parts[3])
        except OSError:
            continue  # it has gone
    return found


def use(name, target, **more):
    return {"name": name, "target": target, **more}


class VolumeCase(CliCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.no_volumes)  # before the sandboxes are removed: cleanups run last first
        self.addCleanup(lambda: self.daemon.remove_all())

    def no_volumes(self):
        for volume in self.volumes():
            self.client.call("DELETE", f"/v1/volumes/{volume}")
        wait_until(lambda: not loops(self.daemon), "no loop device is left")

    def volumes(self):
        return [v["name"] for v in self.client.call("GET", "/v1/volumes")["volumes"]]

    def make(self, name, size=32 * MIB, **more):
        return self.client.call("POST", "/v1/volumes", {"name": name, "size_bytes": size, **more})

    def volume(self, name):
        return self.client.call("GET", f"/v1/volumes/{name}")

    def archive(self, name):
        status, _, payload = self.client.raw("GET", f"/v1/volumes/{name}/archive")
        self.assertEqual(status, 200, payload[:500])
        return tarfile.open(fileobj=io.BytesIO(payload))

    def put_archive(self, name, fill):
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
                fill(tar)
            status, _, payload = self.client.raw("PUT", f"/v1/volumes/{name}/archive", buffer.getvalue())
        return status, json.loads(payload)


def add_file(tar, name, content, **more):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(content))


class Sharing(VolumeCase):
    def test_two_sandboxes_with_other_host_ids_share_one(self):
        a = self.sandbox(volumes=[use("shared", "/data", size_bytes=32 * MIB)])
        b = self.sandbox(volumes=[use("shared", "/workspace")])
        self.assertNotEqual(self.client.get(a)["host_id_start"], self.client.get(b)["host_id_start"])
        self.client.output(a, ["sh", "-c", "echo from a > /data/file && mkdir /data/made && chmod 700 /data/made"])
        self.assertEqual(self.client.output(b, ["cat", "/workspace/file"]), "from a\n")
        self.assertEqual(self.client.output(b, ["stat", "-c", "%u:%g", "/workspace", "/workspace/file"]), "1000:1000\n1000:1000\n")
        self.client.output(b, ["sh", "-c", "echo more >> file && touch made/inside"])
        self.assertEqual(self.client.output(a, ["cat", "/data/file"]), "from a\nmore\n")
        self.assertEqual(len(loops(self.daemon)), 1)
        shown = self.volume("shared")
        self.assertEqual([(u["id"], u["target"]) for u in shown["sandboxes"]], [(a, "/data"), (b, "/workspace")])
        self.assertEqual(self.client.output(a, ["ls", "-A", "/data"]), "file\nmade\n")  # no lost+found

    def test_read_only_is_read_only(self):
        writer = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)])
        self.client.output(writer, ["sh", "-c", "echo kept > /data/file"])
        reader = self.sandbox(volumes=[use("v", "/data", readonly=True)], user="root")
        for command in ("echo x > /data/file", "rm /data/file", "mount -o remount,rw /data"):
            self.assertNotEqual(self.client.exec(reader, ["sh", "-c", command])["exit_code"], 0, command)
        self.assertEqual(self.client.output(reader, ["cat", "/data/file"]), "kept\n")
        self.assertEqual(self.client.get(reader)["volumes"], [{"name": "v", "target": "/data", "readonly": True}])

    def test_mounts_are_nosuid_and_nodev(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)])
        line = [m for m in self.client.output(box, ["cat", "/proc/self/mounts"]).splitlines() if " /data " in m]
        self.assertEqual(len(line), 1)
        options = line[0].split()[3].split(",")
        self.assertTrue({"nosuid", "nodev", "rw"} <= set(options), options)

    def test_a_full_one_says_so(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=16 * MIB)])
        done = self.client.exec(box, ["sh", "-c", "dd if=/dev/zero of=/data/big bs=1M count=64"])
        self.assertNotEqual(done["exit_code"], 0)
        self.assertIn("No space left", done["stderr"])
        status, _, payload = self.client.raw("PUT", f"/v1/sandboxes/{box}/files/data/more", b"x" * MIB)
        self.assertEqual((status, json.loads(payload)["error"]["code"]), (507, "no_space"))
        self.client.output(box, ["sh", "-c", "rm /data/big && echo fits > /data/small"])

    def test_places(self):
        places = ["/srv/new/deep", "/workspace/in/side", "/home/sandbox/.cache", "/etc/conf", "/tmp/t"]
        box = self.sandbox(volumes=[use(f"v{i}", place, size_bytes=16 * MIB) for i, place in enumerate(places)])
        for place in places:
            self.client.output(box, ["sh", "-c", f"echo {place} > {place}/file"])
            self.assertEqual(self.client.output(box, ["stat", "-c", "%u:%g %a", place]), "1000:1000 755\n")
        self.client.output(box, ["touch", "/workspace/in/own", "/workspace/own"])
        self.client.delete(box)
        for i, place in enumerate(places):
            names = self.archive(f"v{i}").getnames()
            self.assertEqual(names, [".", "file"])

    def test_what_is_refused(self):
        self.make("v")
        for target in ("/", "/proc/x", "/proc", "/dev/shm", "/sys", "relative", "/a/../b", "/var", "/home"):
            error = self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "busybox", "volumes": [use("v", target)]})
            self.assertTrue(error.get("field"), target)
        self.refused("invalid_argument", "POST", "/v1/sandboxes",
                     {"image": "busybox", "volumes": [use("v", "/a"), use("v", "/a")]})
        self.refused("invalid_argument", "POST", "/v1/sandboxes",
                     {"image": "busybox", "volumes": [use("v", "/a"), use("v", "/a/b")]})
        self.refused("limit", "POST", "/v1/sandboxes",
                     {"image": "busybox", "volumes": [use("v", f"/v{i}") for i in range(17)]})
        missing = self.refused("not_found", "POST", "/v1/sandboxes", {"image": "busybox", "volumes": [use("none", "/a")]})
        self.assertEqual(missing["field"], "volumes[0].name")
        self.assertIn("size_bytes", missing["hint"])
        for name in ("", ".", "..", ".new-1", "a/b", "x" * 64):
            self.refused("invalid_argument", "POST", "/v1/volumes", {"name": name, "size_bytes": 32 * MIB})
        self.refused("invalid_argument", "POST", "/v1/volumes", {"name": "small", "size_bytes": 1 * MIB})
        self.refused("exists", "POST", "/v1/volumes", {"name": "v", "size_bytes": 32 * MIB})
        self.assertEqual(self.volumes(), ["v"])


class Keeping(VolumeCase):
    def test_one_in_use_is_not_removed(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)])
        error = self.refused("bad_state", "DELETE", "/v1/volumes/v")
        self.assertIn(box, error["message"])
        self.client.delete(box)
        self.client.call("DELETE", "/v1/volumes/v")
        self.refused("not_found", "GET", "/v1/volumes/v")
        self.assertEqual(list((self.daemon.dir / "state" / "volumes").iterdir()), [])

    def test_it_takes_what_it_holds(self):
        made = self.make("v", 1024 * MIB)
        self.assertEqual((made["size_bytes"], made["owner"], made["sandboxes"]), (1024 * MIB, "1000:1000", []))
        self.assertLess(made["disk_bytes"], 64 * MIB)
        image = self.daemon.dir / "state" / "volumes" / "v" / "image"
        self.assertEqual(image.stat().st_mode & 0o777, 0o600)

    def test_owner_and_labels(self):
        self.make("v", owner="0:7", labels={"team": "a"})
        self.make("w", labels={"team": "b"})
        box = self.sandbox(volumes=[use("v", "/data")], user="root")
        self.assertEqual(self.client.output(box, ["stat", "-c", "%u:%g", "/data"]), "0:7\n")
        listed = self.client.call("GET", "/v1/volumes?label=team%3Da")["volumes"]
        self.assertEqual([(v["name"], v["labels"]) for v in listed], [("v", {"team": "a"})])

    def test_growing(self):
        self.make("v", 16 * MIB)
        box = self.sandbox(volumes=[use("v", "/data")])
        self.client.output(box, ["sh", "-c", "echo kept > /data/file"])
        try:
            self.client.call("PATCH", "/v1/volumes/v", {"size_bytes": 48 * MIB})
        except ApiError as error:  # not every root may
            self.assertEqual(error.code, "unsupported")
            self.assertIn("CAP_SYS_RESOURCE", error.error["message"])
            self.assertEqual(self.volume("v")["size_bytes"], 16 * MIB)
            self.client.delete(box)
            self.client.call("PATCH", "/v1/volumes/v", {"size_bytes": 48 * MIB})
            box = self.sandbox(volumes=[use("v", "/data")])
        self.assertEqual(self.volume("v")["size_bytes"], 48 * MIB)
        self.client.output(box, ["dd", "if=/dev/zero", "of=/data/big", "bs=1M", "count=30"])
        self.assertEqual(self.client.output(box, ["ls", "-A", "/data"]), "big\nfile\n")
        self.refused("invalid_argument", "PATCH", "/v1/volumes/v", {"size_bytes": 16 * MIB})

    def test_a_copy_is_of_now_and_independent(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=64 * MIB)])
        self.client.output(box, ["sh", "-c", "dd if=/dev/urandom of=/data/big bs=1M count=8 && echo one > /data/file"])
        before = self.client.output(box, ["sha256sum", "/data/big"]).split()[0]
        copy = self.client.call("POST", "/v1/volumes/v/copy", {"to": "w"})
        self.assertEqual((copy["name"], copy["size_bytes"]), ("w", 64 * MIB))
        self.client.output(box, ["sh", "-c", "echo two > /data/file"])  # nothing stays frozen
        other = self.sandbox(volumes=[use("w", "/data"), use("v", "/old", readonly=True)])
        self.assertEqual(self.client.output(other, ["cat", "/data/file", "/old/file"]), "one\ntwo\n")
        self.assertEqual(self.client.output(other, ["sha256sum", "/data/big"]).split()[0], before)
        self.refused("exists", "POST", "/v1/volumes/v/copy", {"to": "w"})

    def test_who_writes_during_a_copy_goes_on_after_it(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=64 * MIB)])
        writer = self.client.call("POST", f"/v1/sandboxes/{box}/processes",
                                  {"command": ["sh", "-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); echo $i >> /data/log; done"]})["id"]
        for i in range(3):
            self.client.call("POST", "/v1/volumes/v/copy", {"to": f"w{i}"})
        size = lambda: int(self.client.output(box, ["stat", "-c", "%s", "/data/log"]))
        now = size()
        wait_until(lambda: size() > now, "the writer goes on")
        self.client.call("DELETE", f"/v1/sandboxes/{box}/processes/{writer}")

    def test_prune(self):
        self.make("a")
        self.make("b", labels={"keep": "yes"})
        self.sandbox(volumes=[use("used", "/data", size_bytes=32 * MIB)])
        dry = self.client.call("POST", "/v1/volumes/prune", {"dry_run": True})
        self.assertEqual(dry["volumes"], ["a", "b"])
        self.assertEqual(self.client.call("POST", "/v1/volumes/prune", {"labels": ["!keep"]})["volumes"], ["a"])
        self.assertEqual(self.volumes(), ["b", "used"])


class Archives(VolumeCase):
    def test_out_and_in_again(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)], user="root")
        self.client.output(box, ["sh", "-c", "cd /data && mkdir -p d/e && echo hi > d/e/f && chmod 640 d/e/f && chown 5:6 d/e/f &&"
                                 " ln d/e/f hard && ln -s d/e/f soft && echo x > .wh.name && mkfifo pipe"])
        tar = self.archive("v")
        self.assertEqual(sorted(tar.getnames()), [".", ".wh.name", "d", "d/e", "d/e/f", "hard", "pipe", "soft"])
        entry = tar.getmember("d/e/f")
        self.assertEqual((entry.uid, entry.gid, entry.mode & 0o7777), (5, 6, 0o640))
        self.make("w")
        status, _, payload = self.client.raw("GET", "/v1/volumes/v/archive")
        self.assertEqual(status, 200)
        status, _, reply = self.client.raw("PUT", "/v1/volumes/w/archive", payload)
        self.assertEqual(status, 200, reply)
        self.assertEqual(sorted(self.archive("w").getnames()), sorted(tar.getnames()))
        other = self.sandbox(volumes=[use("w", "/data")])
        self.assertEqual(self.client.output(other, ["stat", "-c", "%u:%g %a %h", "/data/hard"]), "5:6 640 2\n")

    def test_in_over_what_is_there_while_it_is_used(self):
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)])
        self.client.output(box, ["sh", "-c", "echo old > /data/replaced; echo mine > /data/kept"])
        status, volume = self.put_archive("v", lambda tar: add_file(tar, "replaced", b"new\n", uid=1000, gid=1000, mode=0o644))
        self.assertEqual((status, volume["name"]), (200, "v"))
        self.assertEqual(self.client.output(box, ["cat", "/data/replaced", "/data/kept"]), "new\nmine\n")
        self.assertEqual(self.client.output(box, ["stat", "-c", "%u %a", "/data"]), "1000 755\n")

    def test_no_link_leads_out(self):
        """volume_symlink_export: links that a tenant put into it lead nobody anywhere."""
        secret = self.daemon.dir / "secret"
        secret.write_text("of the host\n")
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)], user="root")
        self.client.output(box, ["sh", "-c", f"cd /data && ln -s {secret} file && ln -s {secret.parent} dir && ln -s ../../../../../.. up"])
        tar = self.archive("v")
        for name, target in (("file", str(secret)), ("dir", str(secret.parent)), ("up", "../../../../../..")):
            self.assertTrue(tar.getmember(name).issym())
            self.assertEqual(tar.getmember(name).linkname, target)
        self.assertFalse([m for m in tar.getmembers() if m.isfile()])
        for path in ("dir/secret", f"up{secret}"):
            status, reply = self.put_archive("v", lambda tar, path=path: add_file(tar, path, b"changed\n"))
            self.assertEqual((status, reply["error"]["code"]), (400, "invalid_argument"), reply)
        self.assertEqual(self.put_archive("v", lambda tar: add_file(tar, "file", b"in the link's place\n"))[0], 200)
        self.assertEqual(secret.read_text(), "of the host\n")
        self.assertEqual(sorted(p.name for p in self.daemon.dir.iterdir() if p.name == "changed"), [])
        for path in ("../out", "/../../out"):
            status, reply = self.put_archive("v", lambda tar, path=path: add_file(tar, path, b"x"))
            self.assertEqual(status, 400, reply)

    def test_a_tree_that_is_swapped_all_the_time_leads_nobody_out(self):
        """A second sandbox swaps directories for links while it is exported."""
        secret = self.daemon.dir / "outside"
        secret.mkdir(exist_ok=True)
        (secret / "secret").write_text("of the host\n")
        box = self.sandbox(volumes=[use("v", "/data", size_bytes=32 * MIB)])
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": [
            "sh", "-c", f"cd /data; mkdir real; echo inside > real/secret; ln -s {secret} link;"
            " while true; do mv real turn; mv link real; mv real link; mv turn real; done"]})
        stop, failed = threading.Event(), []

        def export():
            with contextlib.closing(self.daemon.client()) as client:
                while not stop.is_set():
                    status, _, payload = client.raw("GET", "/v1/volumes/v/archive")
                    if status != 200 or b"of the host" in payload:
                        failed.append((status, payload[:200]))

        thread = threading.Thread(target=export)
        thread.start()
        for _ in range(100):
            status, _, payload = self.client.raw("GET", "/v1/volumes/v/archive")
            self.assertEqual(status, 200)
            self.assertNotIn(b"of the host", payload)
        stop.set()
        thread.join()
        self.assertEqual(failed, [])

    def test_more_than_fits(self):
        self.make("v", 16 * MIB)
        status, reply = self.put_archive("v", lambda tar: add_file(tar, "big", bytes(32 * MIB)))
        self.assertEqual((status, reply["error"]["code"]), (507, "no_space"), reply)
        status, _, _ = self.client.raw("PUT", "/v1/volumes/v/archive", b"this is no archive" * 1000)
        self.assertNotEqual(status, 200)


class Commands(VolumeCase):
    def test_the_program(self):
        self.assertEqual(self.text("volume", "create", "data", "--size", "32MiB", "--label", "team=a"), "data\n")
        self.assertEqual(self.text("run", "-v", "data:/data", "busybox", "--", "sh", "-c", "echo hi > /data/f"), "")
        self.assertEqual(self.text("run", "--volume", "data:/data:ro", "busybox", "--", "cat", "/data/f"), "hi\n")
        self.assertEqual(self.text("run", "-v", "new:/data:size=16MiB", "busybox", "--", "ls", "-A", "/data"), "")
        self.assertEqual(self.text("volume", "ls", "-q"), "data\nnew\n")
        self.assertEqual(json.loads(self.text("volume", "inspect", "data"))["labels"], {"team": "a"})
        self.text("volume", "grow", "data", "40MiB")
        self.assertEqual(self.text("volume", "copy", "data", "other"), "other\n")
        self.assertEqual(json.loads(self.text("volume", "ls", "--json"))["volumes"][0]["size_bytes"], 40 * MIB)
        tar = self.daemon.dir / "out.tar"
        self.text("volume", "export", "data", str(tar))
        with tarfile.open(tar) as archive:
            self.assertEqual(archive.getnames(), [".", "f"])
        self.text("volume", "import", "new", str(tar))
        with tarfile.open(fileobj=io.BytesIO(self.hutch("volume", "export", "new").stdout)) as archive:
            self.assertEqual(archive.getnames(), [".", "f"])
        self.assertIn("would remove data\n", self.text("volume", "prune", "-l", "team=a"))
        self.text("volume", "rm", "other")
        self.text("volume", "prune", "-y")
        self.assertEqual(self.volumes(), [])
        self.assertNotEqual(self.hutch("run", "-v", "data", "busybox", "--", "true").returncode, 0)


class Outliving(OwnDaemonCase):
    def test_all_who_used_it(self):
        box = self.client.create(volumes=[use("v", "/data", size_bytes=32 * MIB)])["id"]
        self.client.output(box, ["sh", "-c", "echo kept > /data/file && sync"])
        # The daemon is killed; the sandbox goes on writing.
        self.daemon.kill()
        self.restart()
        self.client.output(box, ["sh", "-c", "echo later >> /data/file"])
        third = self.client.create(volumes=[use("v", "/data")])["id"]
        self.assertEqual(self.client.output(third, ["cat", "/data/file"]), "kept\nlater\n")
        self.client.output(third, ["sh", "-c", "echo third >> /data/file"])
        self.assertEqual(self.client.output(box, ["cat", "/data/file"]), "kept\nlater\nthird\n")
        devices = {self.client.output(b, ["stat", "-c", "%d", "/data"]) for b in (box, third)}
        self.assertEqual(len(devices), 1)  # one file system
        self.assertEqual(len(loops(self.daemon)), 1)
        self.assertEqual(sorted(u["id"] for u in self.client.call("GET", "/v1/volumes/v")["sandboxes"]), sorted([box, third]))
        for one in (box, third):
            self.client.delete(one)
        wait_until(lambda: not loops(self.daemon), "the device goes with the last sandbox")
        self.daemon.stop()
        self.restart()
        last = self.client.create(volumes=[use("v", "/data", readonly=True)])["id"]
        self.assertEqual(self.client.output(last, ["cat", "/data/file"]), "kept\nlater\nthird\n")

    def test_a_daemon_killed_while_it_makes_removes_and_copies(self):
        box = self.client.create(volumes=[use("v", "/data", size_bytes=256 * MIB)])["id"]
        self.client.output(box, ["sh", "-c", "dd if=/dev/urandom of=/data/big bs=1M count=64 && sync"])
        before = self.client.output(box, ["sha256sum", "/data/big"])
        told = ["v"]
        for round_number in range(6):
            calls = [("POST", "/v1/volumes/v/copy", {"to": f"copy{round_number}"}),
                     ("POST", "/v1/volumes", {"name": f"new{round_number}", "size_bytes": 32 * MIB})]

            def ask(call):
                with contextlib.closing(self.daemon.client()) as client:
                    try:
                        client.call(*call)
                        told.append(call[2].get("to") or call[2]["name"])
                    except Exception:  # pylint: disable=broad-except
                        pass

            threads = [threading.Thread(target=ask, args=(call,)) for call in calls]
            for thread in threads:
                thread.start()
            threads[0].join(0.03 * round_number)
            self.daemon.kill()
            for thread in threads:
                thread.join()
            self.restart()
            # The sandbox is not frozen, and what was told is there.
            self.client.output(box, ["sh", "-c", f"echo {round_number} > /data/round && sync"])
            names = [v["name"] for v in self.client.call("GET", "/v1/volumes")["volumes"]]
            self.assertEqual(set(told) - set(names), set())
            on_disk = sorted(p.name for p in (self.daemon.dir / "state" / "volumes").iterdir())
            self.assertEqual(on_disk, sorted(names))
            self.assertEqual({v["state"] for v in self.client.call("GET", "/v1/volumes")["volumes"]}, {"ready"})
        self.assertEqual(self.client.output(box, ["sha256sum", "/data/big"]), before)
        for name in [n for n in names if n.startswith("copy")][:2]:
            other = self.client.create(volumes=[use(name, "/data")])["id"]
            self.assertEqual(self.client.output(other, ["sha256sum", "/data/big"]), before)
            self.client.delete(other)

    def test_all_together_have_a_ceiling(self):
        self.client.close()
        self.daemon.stop()
        config = json.loads(self.daemon.config.read_text())
        config["limits"] = {"volumes_total_bytes": 64 * MIB}
        self.daemon.config.write_text(json.dumps(config))
        self.restart()
        self.client.call("POST", "/v1/volumes", {"name": "a", "size_bytes": 48 * MIB})
        error = self.refused("POST", "/v1/volumes", {"name": "b", "size_bytes": 32 * MIB})
        self.assertIn("volumes_total_bytes", error["message"])
        self.refused("POST", "/v1/volumes/a/copy", {"to": "b"})
        self.refused("PATCH", "/v1/volumes/a", {"size_bytes": 128 * MIB})
        self.refused("POST", "/v1/sandboxes", {"image": "busybox", "volumes": [use("b", "/data", size_bytes=32 * MIB)]})

    def refused(self, method, path, body):
        with self.assertRaises(ApiError) as caught:
            self.client.call(method, path, body)
        self.assertEqual(caught.exception.code, "limit", caught.exception)
        return caught.exception.error


if __name__ == "__main__":
    unittest.main()
