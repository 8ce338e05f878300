"""Templates: devcontainer.json from the operator's directory to a sandbox whose commands have run."""
import json
import os
import shutil
import tempfile
import threading
import unittest

from cli import CliCase
from client import ApiError
from daemon import ENDS, wait_until

DEMO = """// comments and trailing commas are fine
{
  "name": "demo",
  "image": "busybox:latest",
  "containerEnv": {"A": "container", "B": "container"},
  "remoteEnv": {"PATH": "/opt/bin:${containerEnv:PATH}", "R": "${containerEnv:B}-remote", "A": null},
  "remoteUser": "sandbox",
  "workspaceFolder": "/srv/app",
  "mounts": ["type=tmpfs,target=/cache", {"type": "tmpfs", "target": "/workspace/node_modules"}],
  "hostRequirements": {"memory": "64mb"},
  "onCreateCommand": "id -un >>/workspace/log; pwd >>/workspace/log; echo one $R",
  "updateContentCommand": ["sh", "-c", "echo two >>/workspace/log"],
  "postCreateCommand": {"a": "touch a; until [ -e b ]; do sleep 0.05; done", "b": "touch b; until [ -e a ]; do sleep 0.05; done"},
  "postStartCommand": "echo three >>/workspace/log", /* last */
  "customizations": {"hutch": {"limits": {"pids": 77}, "labels": {"from": "demo"}, "description": "for tests"}, "vscode": {"extensions": []}},
}
"""


class TemplateCase(CliCase):
    @classmethod
    def setUpClass(cls):
        os.umask(0o022)  # what everyone may write is refused
        cls.templates = tempfile.mkdtemp(prefix="hutch-templates-")
        cls.addClassCleanup(shutil.rmtree, cls.templates)
        cls.config = {"templates_dir": cls.templates, "template_command_seconds": 20}
        super().setUpClass()

    def write(self, name, text, place="devcontainer.json"):
        path = os.path.join(self.templates, name, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        self.addCleanup(shutil.rmtree, os.path.join(self.templates, name), True)

    def box(self, **members):
        self.write("box", {"image": "busybox", **members})

    def make(self, **fields):
        return self.client.call("POST", "/v1/sandboxes", fields)

    def failed(self, **fields):
        with self.assertRaises(ApiError) as caught:
            self.make(**fields)
        return caught.exception.error

    def recorded(self):
        entries = self.client.call("GET", "/v1/audit?kind=exec")["entries"]
        return [(entry["detail"]["command"], entry["outcome"]) for entry in entries]

    def nothing_lives(self):
        return [s for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"] if s["state"] not in ENDS] == []


class Templates(TemplateCase):
    def test_the_whole_of_it(self):
        self.write("demo", DEMO)
        made = self.make(template="demo", name="one", env={"B": "mine"}, labels={"more": "1"})
        self.assertEqual((made["template"], made["image"], made["state"]), ("demo", "busybox:latest", "running"))
        self.assertEqual(made["lifecycle"], {"state": "done", "stage": None, "error": None})
        self.assertEqual(made["labels"], {"from": "demo", "more": "1"})
        self.assertEqual((made["limits"]["pids"], made["workdir"], made["user"]), (77, "/srv/app", "1000:1000"))
        self.assertEqual((made["env"]["A"], made["env"]["B"]), ("container", "mine"))
        log = self.client.output("one", "cat /workspace/log").split()
        self.assertEqual(log, ["sandbox", "/srv/app", "two", "three"])
        # Commands get what is remote: a path before the container's, another variable, one taken away.
        self.assertEqual(self.client.output("one", "echo ${PATH%%:*} $R ${A-none}").split(), ["/opt/bin", "mine-remote", "none"])
        process = self.client.call("POST", "/v1/sandboxes/one/processes", {"command": "echo $R"})["id"]
        self.client.call("GET", f"/v1/sandboxes/one/processes/{process}?wait_seconds=30")
        output = self.client.call("GET", f"/v1/sandboxes/one/processes/{process}/output")
        self.assertEqual(output["chunks"][0]["data"], "mine-remote\n")
        # The workspace belongs to the user; the mounts can be written, and so can what is below one.
        self.assertEqual(self.client.output("one", "stat -c %u:%a . /cache /workspace/node_modules; touch x /cache/x /workspace/node_modules/x").split(),
                         ["1000:755", "0:1777", "0:1777"])
        self.assertNotEqual(self.client.exec("one", "touch /srv/x")["exit_code"], 0)

    def test_the_users_own_fields_win_and_null_takes_out(self):
        self.box(containerEnv={"A": "1"}, customizations={"hutch": {"limits": {"pids": 77}, "timeouts": {"idle_seconds": 60}}})
        made = self.make(template="box", limits={"pids": 88}, timeouts={"idle_seconds": None}, env={"A": None})
        self.assertEqual(made["limits"]["pids"], 88)
        self.assertEqual(made["timeouts"]["idle_seconds"], 1800)
        self.assertNotIn("A", made["env"])

    def test_image_and_template_do_not_go_together(self):
        self.box()
        self.assertEqual(self.failed(template="box", image="busybox")["field"], "image")
        self.assertEqual(self.failed(template="none")["field"], "template")
        self.assertEqual(self.failed(template="../box")["code"], "invalid_argument")

    def test_a_failing_command_fails_the_creation(self):
        self.box(onCreateCommand="echo working; echo broken >&2; exit 3", postCreateCommand="touch /workspace/never")
        error = self.failed(template="box", name="fails")
        self.assertEqual((error["code"], error["step"], error["exit_code"], error["cause"]), ("bad_state", "onCreateCommand", 3, "exited"))
        self.assertEqual(error["output"], "working\nbroken\n")
        self.assertIn("exit code 3: broken", error["message"])
        self.assertTrue(self.nothing_lives())
        self.box(onCreateCommand=["no-such-program"])
        self.assertEqual(self.failed(template="box", name="fails")["code"], "command_not_found")
        self.assertTrue(self.nothing_lives())
        wait_until(lambda: (["no-such-program"], "command_not_found") in self.recorded(), "the audit log knows of it")

    def test_of_a_flood_the_end_is_kept(self):
        self.box(onCreateCommand="head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 4")
        before = self.daemon.rss_kib()
        error = self.failed(template="box")
        self.assertEqual(error["exit_code"], 4)
        self.assertLessEqual(len(error["output"]), 4096)
        self.assertTrue(error["output"].endswith("x\nthe end\n"))
        self.assertLess(self.daemon.rss_kib() - before, 20000)

    def test_a_parallel_command_that_fails_ends_the_others(self):
        self.box(postCreateCommand={"bad": "sleep 0.2; exit 7", "long": "sleep 1000"})
        error = self.failed(template="box")
        self.assertEqual(error["exit_code"], 7)
        self.assertIn("\"bad\"", error["message"])
        self.assertTrue(self.nothing_lives())

    def test_wait_for(self):
        self.box(waitFor="onCreateCommand", onCreateCommand="true", postCreateCommand="until [ -e /workspace/go ]; do sleep 0.1; done; exit 5")
        made = self.make(template="box", name="early")
        self.assertEqual(made["lifecycle"]["state"], "running")
        self.client.output("early", "touch /workspace/go")
        ended = wait_until(lambda: (s := self.client.get("early"))["lifecycle"]["state"] == "failed" and s, "its failure is on record")
        self.assertEqual((ended["state"], ended["lifecycle"]["stage"]), ("running", "postCreateCommand"))
        self.assertIn("exit code 5", ended["lifecycle"]["error"])

    def test_a_client_that_leaves_takes_the_sandbox_with_it(self):
        self.box(onCreateCommand="sleep 1000")
        client = self.daemon.client()
        client.connection.request("POST", "/v1/sandboxes", '{"template": "box"}')
        wait_until(lambda: any(s["processes"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]), "the command runs")
        client.close()
        wait_until(self.nothing_lives, "the sandbox is gone")

    def test_events(self):
        self.box(onCreateCommand={"deps": "echo hello"}, postCreateCommand="true")
        status, headers, body = self.client.raw("POST", "/v1/sandboxes", {"template": "box"}, {"Accept": "application/x-ndjson"})
        events = [json.loads(line) for line in body.decode().splitlines()]
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"))
        self.assertEqual([e["event"] for e in events], ["progress", "output", "progress", "result"])
        self.assertEqual((events[1]["data"], events[1]["subject"]), ("hello\n", "deps"))
        self.assertEqual(events[-1]["template"], "box")
        self.box(onCreateCommand="exit 9")
        status, _, body = self.client.raw("POST", "/v1/sandboxes", {"template": "box"}, {"Accept": "text/event-stream"})
        last = body.decode().split("\n\n")[-2].split("\n")
        self.assertEqual(last[0], "event: error")
        self.assertEqual(json.loads(last[1].removeprefix("data: "))["error"]["exit_code"], 9)

    def test_lists_are_fresh_and_name_what_is_wrong(self):
        self.assertIn("python", [t["name"] for t in self.client.call("GET", "/v1/templates")["templates"]])
        self.write("team", {"image": "busybox", "name": "first"}, ".devcontainer/devcontainer.json")
        self.write("wrong", {"image": "busybox", "build": {"dockerfile": "Dockerfile"}})
        listed = {t["name"]: t for t in self.client.call("GET", "/v1/templates")["templates"]}
        self.assertEqual((listed["team"]["title"], listed["team"]["source"]), ("first", os.path.join(self.templates, "team")))
        self.assertEqual(listed["python"]["source"], "built-in")
        self.assertEqual((listed["wrong"]["valid"], listed["wrong"]["error"]["field"]), (False, "build"))
        self.write("team", {"image": "busybox", "name": "second"}, ".devcontainer/devcontainer.json")
        self.assertEqual(self.client.call("GET", "/v1/templates/team")["title"], "second")
        self.assertEqual(self.failed(template="wrong")["code"], "unsupported")

    def test_templates_do_not_weaken_unless_the_operator_says_so(self):
        self.box(customizations={"hutch": {"relax": {"proc": "full"}}})
        self.assertEqual(self.failed(template="box")["code"], "forbidden")
        self.box(privileged=True)
        self.assertEqual(self.failed(template="box")["code"], "unsupported")

    def test_the_daemons_environment_stays_its_own(self):
        self.box(containerEnv={"H": "${localEnv:HOME}"})
        self.assertEqual(self.failed(template="box")["code"], "unsupported")
        self.box(containerEnv={"H": "${localEnv:HOME:default}"})
        made = self.make(template="box")
        self.assertEqual(made["env"]["H"], "default")


class Timeouts(TemplateCase):
    def test_a_command_that_takes_too_long(self):
        self.daemon.stop()
        self.daemon.config.write_text(json.dumps({"templates_dir": self.templates, "template_command_seconds": 1, "template_relax": "on"}))
        self.daemon.start()
        self.client.close()
        self.box(onCreateCommand="echo begun; sleep 1000")
        error = self.failed(template="box")
        self.assertEqual((error["cause"], error["exit_code"], error["output"]), ("timed_out", None, "begun\n"))
        self.assertTrue(self.nothing_lives())
        self.box(customizations={"hutch": {"relax": {"proc": "full"}}})
        self.assertEqual(self.make(template="box")["proc"], "full")


class Restarts(TemplateCase):
    def test_a_killed_daemon_leaves_no_unknown_sandbox(self):
        self.box(onCreateCommand="sleep 1000")
        asking = threading.Thread(target=lambda: self.assertRaises(Exception, self.daemon.client().call, "POST", "/v1/sandboxes", {"template": "box"}))
        asking.start()
        wait_until(lambda: any(s["processes"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]), "the command runs")
        self.box(waitFor="initializeCommand", onCreateCommand="sleep 1000")
        told = self.make(template="box", name="told")
        wait_until(lambda: self.client.get("told")["processes"], "its command runs")
        self.daemon.kill()
        asking.join()
        self.daemon.start()
        self.client.close()
        wait_until(lambda: [s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"] if s["ended_at"] is None] == [told["id"]], "only the one that was told of is left")
        again = self.client.get("told")
        self.assertEqual((again["template"], again["lifecycle"]["state"]), ("box", "interrupted"))
        self.assertEqual(self.client.output("told", "echo alive"), "alive\n")


class CommandLine(TemplateCase):
    def test_run_shows_what_the_commands_do(self):
        self.box(onCreateCommand={"deps": "echo getting things"}, remoteEnv={"R": "r"})
        done = self.hutch("run", "--template", "box", "--", "sh", "-c", "echo $R")
        self.assertEqual((done.returncode, done.stdout.decode()), (0, "r\n"), done)
        self.assertIn("onCreateCommand: deps\n", done.stderr.decode())
        self.assertIn("getting things\n", done.stderr.decode())
        self.box(onCreateCommand="echo oh no; exit 3")
        done = self.hutch("run", "--template", "box", "--", "true")
        self.assertEqual((done.returncode, done.stdout), (125, b""), done)
        self.assertIn("exit code 3: oh no", done.stderr.decode())
        self.assertTrue(self.nothing_lives())

    def test_create_list_inspect_validate(self):
        self.box(name="of the team")
        made = self.text("create", "--template", "box", "--name", "made").strip()
        self.assertEqual(self.client.get("made")["id"], made)
        self.assertEqual(json.loads(self.text("--json", "create", "--template", "box"))["template"], "box")
        self.assertRegex(self.text("template", "ls"), r"box +busybox +\S+/box +of the team")
        self.assertIn("box\n", self.text("template", "ls", "-q"))
        self.assertEqual(json.loads(self.text("template", "inspect", "box"))["settings"]["image"], "busybox")
        good = os.path.join(self.templates, "box", "devcontainer.json")
        self.assertEqual(self.text("template", "validate", good), f"{good}: good\n")
        self.write("bad", '{"image": "x", "runArgs": ["--privileged"]}')
        done = self.hutch("template", "validate", os.path.join(self.templates, "bad", "devcontainer.json"))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("runArgs is refused", done.stderr.decode())

    def test_an_interrupt_while_commands_run_ends_all(self):
        self.box(onCreateCommand="echo begun; sleep 1000")
        process = self.start("run", "--template", "box", "--", "true")
        wait_until(lambda: any(s["processes"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]), "the command runs")
        process.terminate()
        self.assertEqual(process.wait(timeout=60), 128 + 15)
        wait_until(self.nothing_lives, "the sandbox is gone")


if __name__ == "__main__":
    unittest.main()
