"""What a sandbox wrote: as an image, as more sandboxes, and as a list of changes. Files, never memory."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest

from cli import CliCase
from client import ApiError
from daemon import OwnDaemonCase, cgroup_roots, wait_until

LOOK = ("cd /workspace && find . -mindepth 1 | sort | xargs stat -c '%n %F %a %u:%g %Y'; find . -type f | sort | xargs stat -c '%n %s %h';"
        "cat one/file; readlink link; readlink dangling")


def frozen(daemon, sandbox):
    """What the kernel says of each of its groups that can be frozen."""
    told = []
    for root in cgroup_roots():
        top = pathlib.Path(root + daemon.parent, "sandboxes", sandbox, "work")
        for name in ("cgroup.freeze", "freezer.state"):
            if (top / name).is_file():
                told.append((top / name).read_text().strip())
    return [one for one in told if one not in ("0", "THAWED")]


def images(client):
    return {image["id"]: image for image in client.call("GET", "/v1/images")["images"]}


class ForkCase(CliCase):
    def post(self, sandbox, verb, **body):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/{verb}", body)

    def fork(self, sandbox, count=1, **body):
        reply = self.post(sandbox, "fork", count=count, **body)
        return [one["id"] for one in reply["sandboxes"]]

    def diff(self, sandbox, query=""):
        return [f"{c['action']} {c['path']}" for c in self.client.call("GET", f"/v1/sandboxes/{sandbox}/diff{query}")["changes"]]

    def out(self, sandbox, command, **more):
        return self.client.output(sandbox, command, **more)

    def filled(self, **fields):
        box = self.sandbox(**fields)
        self.out(box, "cd /workspace && mkdir -p one/two empty && echo text > one/file && ln one/file one/two/hard && "
                      "ln -s one/file link && ln -s nowhere dangling && touch exact && chmod 4750 exact && mkfifo pipe && "
                      "chmod 1777 empty && truncate -s 40M holes && echo end >> holes && mkdir closed && chmod 0 closed && "
                      "echo t > /tmp/t && echo h > ~/h && touch gone && rm gone")
        return box


class Forks(ForkCase):
    def test_a_fork_has_the_files_of_now_as_they_are(self):
        box = self.filled()
        before = self.out(box, LOOK)
        self.assertIn("./one/two/hard 5 2\n", before)
        one, two = self.fork(box, 2)
        for fork in (one, two):
            self.assertEqual(self.out(fork, LOOK), before)
            self.assertEqual(self.out(fork, "cat /tmp/t ~/h; stat -c '%a %u' /workspace /tmp ~; id -u"),
                             self.out(box, "cat /tmp/t ~/h; stat -c '%a %u' /workspace /tmp ~; id -u"))
            self.assertLess(int(self.out(fork, "du -k holes").split()[0]), 1024, "holes stay holes")

    def test_forks_are_independent_and_so_is_the_source(self):
        box = self.filled()
        one, two = self.fork(box, 2)
        self.out(one, "cd /workspace && echo other > one/file && rm link && mkdir new && rmdir empty && mv exact moved")
        self.out(box, "rm -r /workspace/one")
        self.assertEqual(self.out(two, "cd /workspace && cat one/file && ls"), "text\nclosed\ndangling\nempty\nexact\nholes\nlink\none\npipe\n")
        self.assertEqual(self.out(one, "cd /workspace && cat one/file && ls"), "other\nclosed\ndangling\nholes\nmoved\nnew\none\npipe\n")

    def test_a_fork_of_a_fork_has_both_and_what_is_deleted_stays_so(self):
        box = self.filled()
        first, = self.fork(box)
        self.out(first, "cd /workspace && rm -r one link && mkdir one && echo second > one/new && echo s > second && rm /tmp/t")
        self.client.delete(box)
        second, = self.fork(first)
        self.client.delete(first)
        self.assertEqual(self.out(second, "cd /workspace && find one second | sort && ls -A /tmp && cat one/new"),
                         "one\none/new\nsecond\nsecond\n")
        self.out(second, "echo third > /workspace/second && rm -r /workspace/one")
        third, = self.fork(second)
        self.assertEqual(self.out(third, "cat /workspace/second; ls /workspace"), "third\nclosed\ndangling\nempty\nexact\nholes\npipe\nsecond\n")

    def test_what_was_read_only_stays_so(self):
        fork, = self.fork(self.filled())
        for place in ("/x", "/etc/x", "/usr/x", "/home/x", "/var/x"):
            self.assertNotEqual(self.client.exec(fork, f"touch {place}", user="root")["exit_code"], 0, place)
        self.out(fork, "touch /workspace/x /tmp/x ~/x /var/tmp/x")
        mounts = dict(line.split()[1:4:2] for line in self.out(fork, "cat /proc/self/mounts").splitlines())
        self.assertTrue(mounts["/"].startswith("ro,nosuid,nodev"), mounts["/"])
        self.assertTrue(mounts["/workspace"].startswith("rw,nosuid,nodev"), mounts["/workspace"])

    def test_the_limit_of_the_disk_is_each_forks_own(self):
        box = self.sandbox(limits={"disk_bytes": 32 << 20})
        self.out(box, "dd if=/dev/zero of=big bs=1M count=24")
        fork, = self.fork(box)
        self.out(fork, "dd if=/dev/zero of=second bs=1M count=24")
        self.assertNotEqual(self.client.exec(fork, "dd if=/dev/zero of=third bs=1M count=24")["exit_code"], 0)

    def test_a_writable_root_is_forked_whole(self):
        box = self.sandbox(rootfs={"readonly": False}, user="root")
        self.out(box, "echo n > /etc/new && rm /etc/group && echo c >> /etc/passwd && mkdir /opt2 && chown 7:8 /opt2 && echo w > /workspace/w")
        look = "cat /etc/new /etc/passwd /workspace/w; ls /etc/group; stat -c '%u:%g' /opt2"
        fork, = self.fork(box)
        self.assertEqual(self.client.exec(fork, look)["stdout"], self.client.exec(box, look)["stdout"])
        self.out(fork, "touch /etc/other")
        self.assertIn("/opt2", self.out(fork, "ls -d /opt2"))

    def test_owners_inside_are_kept(self):
        box = self.sandbox(user="root")
        self.out(box, "cd /workspace && touch a b && chown 1234:4321 a && chown 65535:65535 b")
        fork, = self.fork(box)
        self.assertEqual(self.out(fork, "stat -c '%n %u:%g' /workspace/a /workspace/b"), "/workspace/a 1234:4321\n/workspace/b 65535:65535\n")

    def test_settings_and_names(self):
        box = self.client.create(name="origin", labels={"team": "a"}, env={"COLOUR": "red"}, session_key="key",
                                 limits={"memory_bytes": 64 << 20, "pids": 32})["id"]
        reply = self.post("origin", "fork", count=2, name="copy")
        self.assertEqual([s["name"] for s in reply["sandboxes"]], ["copy-1", "copy-2"])
        for fork in reply["sandboxes"]:
            self.assertEqual(fork["labels"], {"team": "a", "forked_from": box})
            self.assertEqual((fork["limits"]["memory_bytes"], fork["limits"]["pids"]), (64 << 20, 32))
            self.assertNotIn(fork.get("session_key"), ("key",))
            self.assertEqual(self.out(fork["id"], "echo $COLOUR"), "red\n")
        error = self.refused("exists", "POST", f"/v1/sandboxes/{box}/fork", {"count": 2, "name": "copy"})
        self.assertEqual(error["field"], "name")
        kinds = [e["kind"] for e in self.client.call("GET", f"/v1/events?sandbox={box}")["events"]]
        self.assertIn("sandbox.forked", kinds)

    def test_a_running_process_goes_on_and_sees_one_state(self):
        box = self.sandbox()
        writer = "i=0; while :; do i=$((i+1)); for f in a b; do echo $i > new; mv new $f; done; done"
        process = self.post(box, "processes", command=writer)["id"]
        wait_until(lambda: self.client.exec(box, "test -s b")["exit_code"] == 0, "it writes")
        for fork in [self.fork(box)[0] for _ in range(5)]:
            a, b = (int(self.out(fork, f"cat {name}")) for name in "ab")
            self.assertIn(a - b, (0, 1), "b was written before a's next")
        first = self.out(box, "cat b")
        wait_until(lambda: self.out(box, "cat b") != first, "it goes on")
        self.assertEqual(self.client.call("GET", f"/v1/sandboxes/{box}/processes/{process}")["state"], "running")
        self.assertEqual(frozen(self.daemon, box), [])

    def test_a_paused_one_stays_paused(self):
        box = self.filled()
        self.post(box, "pause", reclaim=False)
        fork, = self.fork(box)
        self.assertEqual(self.client.get(box)["state"], "paused")
        self.assertEqual(self.client.get(fork)["state"], "running")
        self.assertNotEqual(frozen(self.daemon, box), [])
        self.client.call("POST", f"/v1/sandboxes/{box}/resume")
        self.out(box, "true")

    def test_all_or_none(self):
        box = self.filled()
        before = {s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]}
        error = self.refused("invalid_argument", "POST", f"/v1/sandboxes/{box}/fork", {"count": 101})
        self.assertEqual(error["field"], "count")
        self.refused("invalid_argument", "POST", f"/v1/sandboxes/{box}/fork", {"count": 0})
        self.refused("not_found", "POST", "/v1/sandboxes/nobody/fork", {"count": 1})
        self.assertEqual({s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]}, before)

    def test_the_image_goes_with_the_last_fork(self):
        box = self.filled()
        one, two = self.fork(box, 2)
        image = self.client.get(one)["image_id"]
        self.assertEqual(images(self.client)[image]["references"], [])
        self.client.delete(one)
        time.sleep(0.1)
        self.assertIn(image, images(self.client))
        self.client.delete(two)
        wait_until(lambda: image not in images(self.client), "the image goes")

    def test_what_no_image_can_hold_is_told(self):
        box = self.sandbox()
        self.out(box, "touch .wh.name keep; (nc -lU socket & sleep 0.2; kill $!) 2>/dev/null; ls -A")
        reply = self.post(box, "fork", count=1)
        paths = {one["path"]: one["reason"] for one in reply["skipped"]["examples"]}
        self.assertIn("/workspace/.wh.name", paths)
        self.assertEqual(reply["skipped"]["count"], len(paths))
        self.assertIn("keep", self.out(reply["sandboxes"][0]["id"], "ls /workspace"))

    def test_a_tree_that_is_too_deep_is_refused_and_it_goes_on(self):
        box = self.sandbox()
        self.out(box, "i=0; while [ $i -lt 200 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done")
        error = self.refused("unsupported", "POST", f"/v1/sandboxes/{box}/fork", {"count": 1})
        self.assertIn("deeper", error["message"])
        self.out(box, "true")
        self.assertEqual(frozen(self.daemon, box), [])

    def test_a_file_larger_than_any_layer_is_refused(self):
        box = self.sandbox()
        self.out(box, "truncate -s 1024G huge")
        self.refused("too_large", "POST", f"/v1/sandboxes/{box}/snapshot", {"reference": "huge"})
        self.out(box, "rm huge")
        self.assertEqual(len(self.fork(box)), 1)


class Snapshots(ForkCase):
    def test_an_image_like_any_other(self):
        box = self.filled()
        before = self.out(box, LOOK)
        reply = self.post(box, "snapshot", reference="mine:ready")
        self.assertEqual(reply["image"]["references"], ["mine:ready"])
        self.client.delete(box)
        made = self.client.create(image="mine:ready")["id"]
        self.assertEqual(self.out(made, LOOK), before)
        steps = self.client.call("GET", "/v1/images/mine:ready/history")["history"]
        self.assertEqual(steps[-1]["created_by"], f"hutch snapshot {box}")
        # A second layer over the first.
        self.out(made, "rm -r /workspace/one && echo 2 > /workspace/two")
        self.post(made, "snapshot", reference="mine:second")
        self.client.delete(made)
        self.client.call("DELETE", "/v1/images/mine:ready")
        again = self.client.create(image="mine:second")["id"]
        self.assertEqual(self.out(again, "cd /workspace && cat two; ls; ls -A /tmp"), "2\nclosed\ndangling\nempty\nexact\nholes\nlink\npipe\ntwo\nt\n")
        self.client.delete(again)
        self.client.call("DELETE", "/v1/images/mine:second")

    def test_a_saved_one_is_read_by_other_programs(self):
        box = self.filled()
        self.post(box, "snapshot", reference="saved:one")
        work = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.dir))
        self.addCleanup(shutil.rmtree, work)
        self.text("image", "save", "saved:one", "-o", str(work / "saved.tar"))
        self.client.call("DELETE", "/v1/images/saved:one")
        loaded = self.client.call("POST", "/v1/images/import", {"path": str(work / "saved.tar"), "reference": "loaded:one"})
        made = self.client.create(image="loaded:one")["id"]
        self.assertEqual(self.out(made, LOOK), self.out(box, LOOK))
        self.assertEqual(loaded["references"], ["loaded:one"])
        if shutil.which("skopeo") and shutil.which("umoci"):
            subprocess.run(["skopeo", "copy", "--insecure-policy", f"oci-archive:{work}/saved.tar", f"oci:{work}/layout:one"], check=True,
                           stdout=subprocess.DEVNULL)
            subprocess.run(["umoci", "unpack", "--image", f"{work}/layout:one", str(work / "bundle")], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.assertEqual((work / "bundle/rootfs/workspace/one/file").read_text(), "text\n")
            self.assertEqual(os.stat(work / "bundle/rootfs/workspace/exact").st_uid, 1000)

    def test_a_label_that_lies_makes_nothing_writable(self):
        box = self.filled()
        self.post(box, "snapshot", reference="label:real")
        work = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.dir))
        self.addCleanup(shutil.rmtree, work)
        self.text("image", "save", "label:real", "-o", str(work / "in.tar"))
        self.relabel(work, json.dumps(["/etc", "/", "/usr", "/../etc", "/run", "/dev/shm", "/workspace"]), "label:lies")
        made = self.client.create(image="label:lies")["id"]
        for place in ("/etc/x", "/x", "/usr/x"):
            self.assertNotEqual(self.client.exec(made, f"touch {place}")["exit_code"], 0, place)
        self.out(made, "touch /workspace/x /dev/shm/x && cat /workspace/one/file")
        self.relabel(work, "{not a list", "label:broken")
        self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "label:broken"})

    def relabel(self, work, text, reference):
        import hashlib
        import io
        tree = work / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        with tarfile.open(work / "in.tar") as tar:
            tar.extractall(tree)
        blobs = tree / "blobs/sha256"

        def put(value):
            data = json.dumps(value).encode()
            name = hashlib.sha256(data).hexdigest()
            (blobs / name).write_bytes(data)
            return "sha256:" + name, len(data)

        index = json.loads((tree / "index.json").read_text())
        manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
        config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
        config["config"]["Labels"]["hutch.snapshot.directories"] = text
        manifest["config"]["digest"], manifest["config"]["size"] = put(config)
        index["manifests"] = index["manifests"][:1]
        index["manifests"][0]["digest"], index["manifests"][0]["size"] = put(manifest)
        (tree / "index.json").write_text(json.dumps(index))
        self.client.call("POST", "/v1/images/import", {"path": str(tree), "reference": reference})


class Diffs(ForkCase):
    def test_against_the_image(self):
        box = self.sandbox()
        self.out(box, "mkdir d; echo 1 > d/f; echo t > /tmp/t")
        self.assertEqual(self.diff(box), ["created /tmp/t", "created /workspace/d", "created /workspace/d/f"])
        self.assertEqual(self.diff(box, "?path=/workspace/d"), ["created /workspace/d", "created /workspace/d/f"])
        reply = self.client.call("GET", f"/v1/sandboxes/{box}/diff?limit=1")
        self.assertEqual((len(reply["changes"]), reply["truncated"]), (1, True))

    def test_of_a_fork_against_what_it_was_made_of(self):
        box = self.sandbox()
        self.out(box, "echo 1 > kept; echo 1 > changed; echo 1 > gone; mkdir d; touch d/in")
        fork, = self.fork(box)
        self.assertEqual(self.diff(fork), [])
        result = self.client.exec(fork, "echo 2 > changed; rm gone; echo 3 > new; rm -r d")
        wanted = ["modified /workspace/changed", "deleted /workspace/d", "deleted /workspace/gone", "created /workspace/new"]
        self.assertEqual(self.diff(fork), wanted)
        self.assertEqual([f"{c['action']} {c['path']}" for c in result["files_changed"]], wanted)

    def test_of_a_writable_root(self):
        box = self.sandbox(rootfs={"readonly": False}, user="root")
        self.out(box, "rm /etc/group; echo >> /etc/passwd; echo > /etc/new")
        self.assertEqual(self.diff(box), ["deleted /etc/group", "created /etc/new", "modified /etc/passwd"])


class Commands(ForkCase):
    def test_the_program(self):
        box = self.filled(name="box")
        self.assertRegex(self.text("snapshot", "box", "cli:one"), r"^sha256:[0-9a-f]{64}\n$")
        names = self.text("fork", "box", "-n", "2", "--name", "copy").split()
        self.assertEqual(names, ["copy-1", "copy-2"])
        self.assertIn("/workspace/one/file", self.text("diff", "box"))
        self.assertEqual(json.loads(self.text("diff", "copy-1", "--json")), {"changes": [], "truncated": False})
        self.assertEqual(self.client.get(box)["state"], "running")


class Killed(OwnDaemonCase):
    def test_while_it_is_sealed_nothing_is_left_and_it_goes_on(self):
        box = self.client.create()["id"]
        known = set(images(self.client))
        self.client.output(box, "dd if=/dev/urandom of=a bs=1M count=200")
        process = self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": "while :; do date +%s%N > tick; done"})["id"]
        layers = self.daemon.dir / "state/layers"
        had = {p.name for p in layers.iterdir()}

        def ask():
            client = self.daemon.client()
            try:
                client.call("POST", f"/v1/sandboxes/{box}/fork", {"count": 3})
            except Exception:  # pylint: disable=broad-except
                pass

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: any(p.name.startswith(".tmp-") for p in layers.iterdir()), "a layer is being written")
        self.daemon.kill()
        thread.join()
        self.restart()
        wait_until(lambda: not frozen(self.daemon, box), "the next hutchd has thawed it")
        first = self.client.output(box, "cat tick")
        wait_until(lambda: self.client.output(box, "cat tick") != first, "it goes on")
        self.assertEqual(self.client.call("GET", f"/v1/sandboxes/{box}/processes/{process}")["state"], "running")
        self.assertEqual([s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]], [box])
        self.assertEqual(set(images(self.client)), known)
        wait_until(lambda: {p.name for p in layers.iterdir()} == had, f"no layer is left: {had}")

    def test_forks_and_their_files_outlive_it_and_their_image_goes_with_them(self):
        known = set(images(self.client))
        box = self.client.create()["id"]
        self.client.output(box, "echo kept > file")
        reply = self.client.call("POST", f"/v1/sandboxes/{box}/fork", {"count": 2})
        one, two = (s["id"] for s in reply["sandboxes"])
        self.daemon.kill()
        self.restart()
        self.assertEqual(self.client.output(one, "cat file; echo more > file; cat file"), "kept\nmore\n")
        self.assertEqual(self.client.call("GET", f"/v1/sandboxes/{one}/diff")["changes"][0]["action"], "modified")
        again = self.client.call("POST", f"/v1/sandboxes/{one}/fork", {"count": 1})["sandboxes"][0]["id"]
        self.assertEqual(self.client.output(again, "cat file"), "more\n")
        for sandbox in (one, two, again):
            self.client.delete(sandbox)
        wait_until(lambda: set(images(self.client)) == known, "their images go")


if __name__ == "__main__":
    unittest.main()
