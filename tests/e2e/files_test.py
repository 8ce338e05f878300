"""Files of a sandbox, through the socket."""
import base64
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
import threading
import time
import unittest
import urllib.parse

from client import ApiError, UnixConnection
from daemon import DaemonCase, wait_until


class Files(DaemonCase):
    def setUp(self):
        super().setUp()
        self.id = self.sandbox()
        self.base = f"/v1/sandboxes/{self.id}"

    def put(self, path, data, query="", headers=None):
        return self.client.raw("PUT", f"{self.base}/files{urllib.parse.quote(path)}{query}", data, headers)

    def get(self, path, headers=None, method="GET"):
        return self.client.raw(method, f"{self.base}/files{urllib.parse.quote(path)}", None, headers)

    def post(self, call, **fields):
        return self.client.call("POST", f"{self.base}/files:{call}", fields)

    def sh(self, command):
        return self.client.output(self.id, command)

    def code(self, call, *arguments, **fields):
        with self.assertRaises(ApiError) as caught:
            call(*arguments, **fields)
        return caught.exception.code

    def test_what_is_put_is_read_inside_and_got_back(self):
        data = os.urandom(3_000_000)
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        status, headers, body = self.put("/workspace/a b/ü", data, "?parents=true&mode=0640",
                                         {"Content-Digest": f"sha-256=:{digest}:"})
        self.assertEqual((status, headers["ETag"] is None), (201, False), body)
        self.assertEqual(self.sh("stat -c '%a %u %s' '/workspace/a b/ü'"), "640 1000 3000000\n")
        status, headers, body = self.get("/workspace/a b/ü")
        self.assertEqual((status, body == data), (200, True))
        tag = headers["ETag"]
        self.assertEqual(self.get("/workspace/a b/ü", {"If-None-Match": tag})[0], 304)
        status, headers, body = self.get("/workspace/a b/ü", {"Range": "bytes=10-19"})
        self.assertEqual((status, headers["Content-Range"], body), (206, "bytes 10-19/3000000", data[10:20]))
        self.assertEqual(self.get("/workspace/a b/ü", {"Range": "bytes=3000000-"})[0], 416)
        status, headers, body = self.get("/workspace/a b/ü", method="HEAD")
        self.assertEqual((status, headers["Content-Length"], body), (200, "3000000", b""))
        self.assertEqual(self.put("/workspace/a b/ü", b"new", headers={"If-Match": tag})[0], 200)
        self.assertEqual(self.put("/workspace/a b/ü", b"newer", headers={"If-Match": tag})[0], 412)
        self.assertEqual(self.put("/workspace/a b/ü", b"x", headers={"If-None-Match": "*"})[0], 409)

    def test_a_wrong_digest_leaves_the_file_as_it_was(self):
        self.put("/workspace/a", b"old")
        digest = base64.b64encode(bytes(32)).decode()
        self.assertEqual(self.put("/workspace/a", b"new", headers={"Content-Digest": f"sha-256=:{digest}:"})[0], 422)
        self.assertEqual(self.sh("cat /workspace/a; ls -A /workspace"), "olda\n")

    def test_an_upload_that_breaks_off_leaves_nothing(self):
        for headers in ({"Content-Length": "1000000"}, {"Transfer-Encoding": "chunked"}):
            connection = UnixConnection(self.client.path, 30)
            connection.putrequest("PUT", f"{self.base}/files/workspace/cut")
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            piece = b"x" * 1000
            connection.send(piece if "Content-Length" in headers else b"3e8\r\n" + piece + b"\r\n")
            time.sleep(0.2)
            connection.close()
        wait_until(lambda: not host_processes_of_files(), "the processes have ended")
        self.assertEqual(self.sh("ls -A /workspace"), "")

    def test_errors_have_codes_of_their_own(self):
        self.sh("mkfifo /workspace/fifo; mkdir /workspace/dir; ln -s loop /workspace/loop")
        for path, expected in (("/none", 404), ("/workspace/dir", 409), ("/workspace/fifo", 409), ("/dev/null", 409),
                               ("/workspace/loop", 400)):
            self.assertEqual(self.get(path)[0], expected, path)
        self.assertEqual(self.put("/etc/passwd", b"x")[0], 403)
        self.assertEqual(self.put("/workspace/none/x", b"x")[0], 404)
        self.assertEqual(self.put("/workspace/" + "n" * 256, b"x")[0], 400)

    def test_links_lead_where_they_lead_inside(self):
        self.sh("ln -s /etc/passwd /workspace/link")
        self.assertEqual(self.get("/workspace/link")[2].decode(), self.sh("cat /etc/passwd"))
        self.assertNotEqual(self.get("/workspace/link")[2], pathlib.Path("/etc/passwd").read_bytes())

    def test_a_full_disk_is_told_and_leaves_nothing(self):
        small = self.sandbox(limits={"disk_bytes": 2 << 20})
        status, _, body = self.client.raw("PUT", f"/v1/sandboxes/{small}/files/workspace/big", b"x" * (8 << 20))
        self.assertEqual(status, 507, body)
        self.assertEqual(self.client.output(small, "ls -A /workspace"), "")

    def test_names_and_trees(self):
        self.post("mkdir", path="/workspace/t/a", parents=True)
        self.put("/workspace/t/a/1.py", b"import os\nprint(1)\n")
        self.put("/workspace/t/2.txt", b"one two\n")
        entries = self.client.call("GET", f"{self.base}/files?path=/workspace/t&depth=3")["entries"]
        self.assertEqual([e["path"] for e in entries], ["/workspace/t/2.txt", "/workspace/t/a", "/workspace/t/a/1.py"])
        page = self.client.call("GET", f"{self.base}/files?path=/workspace/t&depth=3&limit=2")
        rest = self.client.call("GET", f"{self.base}/files?path=/workspace/t&depth=3&cursor={urllib.parse.quote(page['next'])}")
        self.assertEqual([e["path"] for e in rest["entries"]], ["/workspace/t/a/1.py"])
        self.assertEqual(self.post("glob", path="/workspace", pattern="**/*.py")["entries"][0]["path"], "/workspace/t/a/1.py")
        match = self.post("grep", path="/workspace", pattern="^pr.nt", include="*.py")["matches"][0]
        self.assertEqual((match["line"], match["text"]), (2, "print(1)"))
        self.assertEqual(self.post("edit", path="/workspace/t/2.txt", old="two", new="2")["replacements"], 1)
        self.assertEqual(self.code(self.post, "edit", path="/workspace/t/2.txt", old="none", new=""), "ambiguous")
        self.post("move", **{"from": "/workspace/t", "to": "/workspace/u"})
        # Another mount of the same file system.
        self.assertTrue(self.post("move", **{"from": "/workspace/u", "to": "/tmp/u"})["copied"])
        self.post("copy", **{"from": "/tmp/u", "to": "/workspace/t", "recursive": True})
        self.assertEqual(self.sh("cat /workspace/t/2.txt"), "one 2\n")
        self.client.call("DELETE", f"{self.base}/files/workspace/t?recursive=true")
        self.assertEqual(self.sh("ls -A /workspace"), "")
        self.assertEqual(self.code(self.client.call, "DELETE", f"{self.base}/files/workspace?recursive=true"), "bad_state")

    def test_several_files_at_once(self):
        written = self.post("write", files=[{"path": "/workspace/a", "content": "A" * 100_000}, {"path": "/etc/x", "content": "B"}])
        self.assertEqual((written["failed"], written["results"][1]["error"]["code"]), (1, "forbidden"))
        read = self.post("read", files=[{"path": "/workspace/a"}, {"path": "/none"}])
        self.assertEqual((len(read["results"][0]["content"]), read["results"][1]["error"]["code"]), (100_000, "not_found"))

    def test_archives_go_out_and_in(self):
        self.sh("mkdir -p /workspace/t/d; echo x > /workspace/t/d/f; ln -s d/f /workspace/t/l")
        for kind in ("tar", "tar.gz", "tar.zst", "zip"):
            status, _, archive = self.client.raw("GET", f"{self.base}/archive?path=/workspace/t&format={kind}")
            self.assertEqual(status, 200)
            if kind == "tar":
                self.assertEqual(sorted(tarfile.open(fileobj=io.BytesIO(archive)).getnames()), ["d", "d/f", "l"])
            status, _, body = self.client.raw("PUT", f"{self.base}/archive?path=/workspace/{kind}&parents=true", archive)
            self.assertEqual(status, 200, body)
            self.assertEqual(self.sh(f"cat /workspace/{kind}/l"), "x\n")

    def test_a_tree_is_copied_from_another_sandbox(self):
        other = self.sandbox()
        self.client.output(other, "mkdir -p /workspace/t; echo y > /workspace/t/f")
        fields = {"from_sandbox": other, "from": "/workspace/t", "to": "/workspace/copy"}
        self.assertEqual(self.code(self.post, "copy", **fields), "is_directory")
        self.assertEqual(self.post("copy", **fields, recursive=True)["copied"]["files"], 1)
        self.assertEqual(self.sh("cat /workspace/copy/f"), "y\n")
        self.assertEqual(self.code(self.post, "copy", **fields, recursive=True), "exists")
        self.assertEqual(self.code(self.post, "copy", **{**fields, "from": "/none"}), "not_found")

    def test_changes_are_told(self):
        connection = UnixConnection(self.client.path, 30)
        connection.request("GET", f"{self.base}/watch?path=/workspace&recursive=true", headers={"Accept": "application/x-ndjson"})
        reply = connection.getresponse()
        self.assertIn(b"watching", reply.readline())
        self.sh("mkdir /workspace/d; echo x > /workspace/d/f")
        seen = b""
        while b"/workspace/d/f" not in seen:
            seen += reply.readline()
        connection.close()
        wait_until(lambda: not host_processes_of_files(), "the watcher has ended")

    def test_a_download_that_nobody_reads_ends_with_its_client(self):
        self.sh("truncate -s 1099511627776 /workspace/hole")
        connection = UnixConnection(self.client.path, 30)
        connection.request("GET", f"{self.base}/files/workspace/hole")
        self.assertEqual(len(connection.getresponse().read(1000)), 1000)
        connection.close()
        wait_until(lambda: not host_processes_of_files(), "the process has ended")

    def test_curl_moves_large_files(self):
        data = self.daemon.dir / "data"
        data.write_bytes(os.urandom(1 << 20) * 200)
        url = f"http://hutch{self.base}/files/workspace/big"
        curl = ["curl", "-sS", "--fail-with-body", "--unix-socket", self.client.path]
        subprocess.run([*curl, "-T", data, url], check=True, capture_output=True)
        subprocess.run([*curl, "-o", self.daemon.dir / "back", url], check=True, capture_output=True)
        self.assertEqual(subprocess.run(["cmp", data, self.daemon.dir / "back"], check=False).returncode, 0)
        self.assertEqual(self.sh("stat -c %s /workspace/big"), f"{200 << 20}\n")

    def test_swapping_directories_and_links_reaches_nothing_new(self):
        self.sh("mkdir -p /workspace/d; echo inside > /workspace/d/passwd")
        swap = "cd /workspace; while [ ! -e stop ]; do rm -rf d; ln -s /etc d; rm -f d; mkdir d; done"
        client = self.daemon.client()
        self.addCleanup(client.close)
        thread = threading.Thread(target=lambda: client.exec(self.id, swap))
        thread.start()
        before = self.sh("cat /etc/passwd")
        for _ in range(100):
            self.put("/workspace/d/passwd", b"mine")
            self.client.raw("DELETE", f"{self.base}/files/workspace/d/passwd")
        self.sh("touch /workspace/stop")
        thread.join()
        self.assertEqual(self.sh("cat /etc/passwd"), before)


def host_processes_of_files():
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and pathlib.Path("/proc", entry, "cmdline").read_bytes().startswith(b"hutch-files\0"):
                found.append(int(entry))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    unittest.main()
