"""What an image says of itself, and what becomes of it: environment, user, directory, command, volumes; the rest is data."""
import json
import subprocess
import unittest

from cli import CliCase
from daemon import ENDS, MAKE_IMAGE, wait_until


class ImageConfig(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([str(MAKE_IMAGE), str(cls.daemon.dir)], check=True, stdout=subprocess.DEVNULL)

    def image(self, name, *config):
        """An image of busybox with another configuration, as umoci writes it."""
        layout = str(self.daemon.dir / "busybox")
        subprocess.run(["umoci", "config", "--image", layout + ":busybox:latest", "--tag", name, *config], check=True, capture_output=True)
        return self.client.call("POST", "/v1/images/import", {"path": layout, "reference": name})

    def sandbox_of(self, name, **fields):
        return self.client.create(image=name, **fields)

    def test_environment_user_and_directory(self):
        self.image("env:1", "--config.env", "A=image", "--config.env", "B=image", "--config.user", "nobody", "--config.workingdir", "/etc")
        made = self.sandbox_of("env:1", env={"B": "request"})
        self.assertEqual((made["user"], made["workdir"], made["env"]["A"], made["env"]["B"]), ("65534:65534", "/etc", "image", "request"))
        self.assertEqual(self.client.output(made["id"], "id -un; pwd; echo $A $B").split(), ["nobody", "/etc", "image", "request"])
        made = self.sandbox_of("env:1", user="sandbox", workdir="/tmp")
        self.assertEqual(self.client.output(made["id"], "id -un; pwd").split(), ["sandbox", "/tmp"])
        self.image("env:2", "--config.user", "nobody-at-all")
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": "env:2"})["field"], "user")

    def test_the_image_command_runs_where_none_is_named(self):
        self.image("cmd:1", "--config.entrypoint", "/bin/echo", "--config.entrypoint", "entry", "--config.cmd", "a b", "--config.cmd", "c")
        made = self.sandbox_of("cmd:1")
        self.assertEqual(made["command"], ["/bin/echo", "entry", "a b", "c"])
        ran = self.client.call("POST", f"/v1/sandboxes/{made['id']}/exec", {})
        self.assertEqual((ran["exit_code"], ran["stdout"]), (0, "entry a b c\n"))
        self.assertEqual(self.client.output(made["id"], ["echo", "mine"]), "mine\n")
        process = self.client.call("POST", f"/v1/sandboxes/{made['id']}/processes", {})
        self.assertEqual(process["command"], ["/bin/echo", "entry", "a b", "c"])
        wait_until(lambda: ["/bin/echo", "entry", "a b", "c"] in [entry["detail"]["command"] for entry in
                                                                  self.client.call("GET", f"/v1/audit?kind=exec&sandbox={made['id']}")["entries"]],
                   "the audit log names what ran")
        self.assertEqual(self.text("run", "cmd:1"), "entry a b c\n")
        self.assertEqual(self.text("run", "cmd:1", "--", "echo", "mine"), "mine\n")
        self.image("cmd:2", "--clear=config.cmd", "--clear=config.entrypoint")
        made = self.sandbox_of("cmd:2")
        self.assertEqual(self.refused("invalid_argument", "POST", f"/v1/sandboxes/{made['id']}/exec", {})["field"], "command")

    def test_the_command_is_known_after_a_restart(self):
        self.image("cmd:3", "--config.cmd", "/bin/echo", "--config.cmd", "again")
        made = self.sandbox_of("cmd:3")
        self.daemon.kill()
        self.daemon.start()
        self.client.close()
        self.assertEqual(self.client.call("POST", f"/v1/sandboxes/{made['id']}/exec", {})["stdout"], "again\n")

    def test_volumes_are_empty_and_writable_within_the_disk(self):
        self.image("vol:1", "--config.volume", "/data", "--config.volume", "/opaque/", "--config.volume", "/var/lib/app/state",
                   "--config.volume", "/workspace/cache", "--config.volume", "/tmp")
        made = self.sandbox_of("vol:1", limits={"disk_bytes": 4 << 20})
        for path in ("/data", "/opaque", "/var/lib/app/state", "/workspace/cache", "/tmp"):
            self.assertEqual(self.client.output(made["id"], f"ls -A {path}; echo mine >{path}/file && cat {path}/file"), "mine\n")
        self.assertEqual(self.client.output(made["id"], "stat -c %u:%g:%a /data /workspace/cache").split(), ["1000:1000:755"] * 2)
        self.assertNotEqual(self.client.exec(made["id"], "touch /var/lib/x")["exit_code"], 0)
        # All that is written together is bounded, wherever it is.
        full = self.client.exec(made["id"], "dd if=/dev/zero of=/data/big bs=1M count=3 && dd if=/dev/zero of=/var/lib/app/state/big bs=1M count=3")
        self.assertNotEqual(full["exit_code"], 0)
        self.assertIn("No space", full["stderr"])
        changed = self.client.exec(made["id"], "rm /data/big; echo >/data/new")["files_changed"]
        self.assertIn(("/data/new", "created"), [(f["path"], f["action"]) for f in changed])
        # As another user, and with a writable root.
        made = self.sandbox_of("vol:1", user="4242:4343", rootfs={"readonly": False})
        self.assertEqual(self.client.output(made["id"], "echo x >/data/x; stat -c %u:%g /data/x /var/lib/app/state").split(), ["4242:4343"] * 2)

    def test_parents_of_a_volume_stay_as_the_image_has_them(self):
        self.image("vol:2", "--config.volume", "/root/state", "--config.volume", "/etc/app", "--config.volume", "/home/other")
        made = self.sandbox_of("vol:2")
        self.assertEqual(self.client.output(made["id"], "stat -c %u:%g:%a /etc /home /root; cat /etc/motd; id -un").split(),
                         ["0:0:755", "0:0:755", "0:0:700", "base", "sandbox"])

    def test_a_volume_cannot_be_anywhere(self):
        for name, path in (("bad:1", "/proc"), ("bad:2", "/data/../proc/sys"), ("bad:3", "/dev/x"), ("bad:4", "/bin/sh/x"), ("bad:5", "/var")):
            self.image(name, "--config.volume", path)
            self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", {"image": name})["field"], "image")
        self.assertEqual([s for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"] if s["state"] not in ENDS], [])

    def test_the_rest_is_data(self):
        self.image("data:1", "--config.exposedports", "8080/tcp", "--config.stopsignal", "SIGINT", "--config.label", "a=b", "--config.volume", "/data")
        config = self.client.call("GET", "/v1/images/data:1")["config"]
        self.assertEqual((config["exposed_ports"], config["stop_signal"], config["labels"]["a"], config["volumes"]),
                         (["8080/tcp"], "SIGINT", "b", ["/data"]))
        made = self.sandbox_of("data:1")
        self.assertEqual((made["labels"], made["network"]["mode"]), ({}, "none"))
        self.assertEqual(json.loads(self.text("image", "inspect", "data:1"))["config"], config)


if __name__ == "__main__":
    unittest.main()
