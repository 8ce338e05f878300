"""Which files a command changed, through the socket."""
import unittest

from daemon import Daemon, DaemonCase


def lines(result):
    return [f"{change['action']} {change['path']}" for change in result["files_changed"]]


class FilesChanged(DaemonCase):
    def test_commands_tell_what_they_changed(self):
        sandbox = self.sandbox()
        result = self.client.exec(sandbox, "echo one > a; mkdir /tmp/d; echo s > /dev/shm/s; ln -s a link")
        self.assertEqual(lines(result), ["created /tmp/d", "created /workspace/a", "created /workspace/link"])
        self.assertEqual(result["files_changed"][1], {"path": "/workspace/a", "action": "created", "size_bytes": 4, "type": "file"})
        self.assertEqual(lines(self.client.exec(sandbox, "echo two > a; mv link other")),
                         ["modified /workspace/a", "deleted /workspace/link", "created /workspace/other"])
        self.assertEqual(lines(self.client.exec(sandbox, "true")), [])

    def test_without_tracking_there_is_no_list(self):
        sandbox = self.sandbox()
        self.assertIsNone(self.client.exec(sandbox, "echo > a", track_files=False)["files_changed"])
        self.assertEqual(lines(self.client.exec(sandbox, "echo > b")), ["created /workspace/b"])

    def test_a_writable_root_is_told_against_the_image(self):
        sandbox = self.sandbox(rootfs={"readonly": False}, user="root")
        result = self.client.exec(sandbox, "echo x >> /etc/passwd; rm /etc/group; echo y > /etc/new")
        self.assertEqual(lines(result), ["deleted /etc/group", "created /etc/new", "modified /etc/passwd"])

    def test_what_a_child_writes_afterwards_is_not_the_next_commands(self):
        sandbox = self.sandbox()
        self.client.exec(sandbox, "(sleep 0.3; echo late > late) & true")
        self.client.exec(sandbox, "sleep 0.6", track_files=False)
        self.assertEqual(lines(self.client.exec(sandbox, "true")), [])

    def test_long_lists_are_cut_and_said_to_be(self):
        result = self.client.exec(self.sandbox(), "seq 1 1100 | xargs touch")
        self.assertEqual((len(result["files_changed"]), result["files_changed_truncated"]), (1000, True))

    def test_a_path_that_is_not_text_is_base64(self):
        change, = self.client.exec(self.sandbox(), "touch \"$(printf 'a\\377')\"")["files_changed"]
        self.assertEqual((change["path"], change["path_encoding"]), ("L3dvcmtzcGFjZS9h/w==", "base64"))


class AfterARestart(unittest.TestCase):
    def test_commands_still_tell(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()
        client = daemon.client()
        ids = [client.create(image="busybox")["id"],
               client.create(image="busybox", rootfs={"readonly": False}, user="root")["id"]]
        client.exec(ids[0], "echo 1 > kept")
        client.close()
        daemon.kill()
        daemon.start()
        client = daemon.client()
        self.addCleanup(client.close)
        self.assertEqual(lines(client.exec(ids[0], "echo 2 > kept")), ["modified /workspace/kept"])
        self.assertEqual(lines(client.exec(ids[1], "rm /etc/group")), ["deleted /etc/group"])


if __name__ == "__main__":
    unittest.main()
