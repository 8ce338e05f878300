"""The life cycle and the operations: runtime.md of the specification."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

from bundle import base_config, shell_config, without_namespace
from case import Case
from runtime import is_alive, wait_for
from terminal import PidfdSocket


class State(Case):
    def test_a_created_container_has_the_state_of_the_specification(self):
        config = base_config("true")
        config["annotations"] = {"org.example.key": "value"}
        name = self.create(config)
        state = self.runtime.state(name)
        self.assertRegex(state["ociVersion"], r"^1\.\d+")
        self.assertEqual(state["id"], name)
        self.assertEqual(state["status"], "created")
        self.assertEqual(state["bundle"], str(self.bundle.path))
        self.assertEqual(state["annotations"]["org.example.key"], "value")
        self.assertTrue(is_alive(state["pid"]))

    def test_a_running_one_is_running_and_an_ended_one_stopped(self):
        name = self.sleeper()
        self.assertEqual(self.runtime.status(name), "running")
        self.runtime.call("kill", name, "TERM")
        self.runtime.wait_status(name, "stopped")

    def test_the_pid_is_that_of_the_containers_program(self):
        name = self.sleeper()
        pid = self.pid(name)
        self.assertEqual(os.readlink(f"/proc/{pid}/root"), "/")
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            self.assertIn("trap", file.read())

    def test_what_does_not_exist_has_no_state(self):
        self.assertNotEqual(self.runtime.call("state", "nobody", check=False).returncode, 0)

    def test_a_stopped_one_has_its_state_until_it_is_deleted(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.assertEqual(self.runtime.state(name)["bundle"], str(self.bundle.path))
        self.runtime.call("delete", name)
        self.assertIsNone(self.runtime.status(name))


class Create(Case):
    def test_the_program_does_not_run_before_start(self):
        name = self.create(shell_config("echo ran"))
        self.assertEqual(self.output(), "")
        self.runtime.call("start", name)
        wait_for(lambda: "ran" in self.output(), "the program")

    def test_an_id_in_use_is_an_error_and_changes_nothing(self):
        name = self.create(base_config("true"))
        before = self.runtime.state(name)
        done = self.runtime.call_to_file(self.work / "second", "create", "--bundle", self.bundle.path, name, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.runtime.state(name), before)

    def test_changes_to_the_config_after_create_have_no_effect(self):
        name = self.create(shell_config("echo first"))
        self.bundle.write(shell_config("echo second"))
        self.runtime.call("start", name)
        self.runtime.wait_status(name, "stopped")
        self.assertEqual(self.output().strip(), "first")

    def test_the_bundle_is_the_working_directory_by_default(self):
        self.bundle.write(shell_config("echo here"))
        done = self.runtime.call("run", self.name(), cwd=self.bundle.path)
        self.assertEqual(done.stdout.strip(), "here")

    def test_no_config_is_an_error(self):
        done = self.runtime.call("create", "--bundle", self.bundle.path, self.name(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("config.json", done.stdout + done.stderr)

    def test_what_is_not_json_is_an_error(self):
        self.refused_text("{ not json")

    def test_a_config_that_is_a_list_is_an_error(self):
        self.refused_text("[]")

    def refused_text(self, text):
        self.bundle.write(text)
        name = self.name()
        done = self.runtime.call("create", "--bundle", self.bundle.path, name, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.strip(), "refused without a message")
        self.assertIsNone(self.runtime.status(name))

    def test_a_root_that_is_not_there_is_an_error(self):
        config = base_config("true")
        config["root"]["path"] = "nowhere"
        self.refused(config)

    def test_unknown_properties_are_ignored(self):
        config = shell_config("echo fine")
        config["org.example.unknown"] = {"a": 1}
        config["process"]["unknown"] = [1]
        config["linux"]["unknown"] = True
        self.assertEqual(self.said(config), "fine")

    def test_versions_of_one_major_number_are_accepted(self):
        for version in ("1.0.0", "1.0.2", "1.1.0", "1.2.0", "1.2.1"):
            config = shell_config("echo fine")
            config["ociVersion"] = version
            self.assertEqual(self.said(config), "fine", version)

    def test_a_version_that_is_none_is_an_error(self):
        config = base_config("true")
        config["ociVersion"] = "not a version"
        self.refused(config)

    def test_the_pid_file_has_the_pid(self):
        name = self.create(base_config("true"), "--pid-file", self.work / "pid")
        self.assertEqual((self.work / "pid").read_text().strip(), str(self.pid(name)))

    def test_ids_that_are_paths_are_refused(self):
        self.bundle.write(base_config("true"))
        for name in ("a/b", "../x", "..", "/x", "a b"):
            self.addCleanup(self.runtime.call, "delete", "--force", name, check=False)
            done = self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, name, check=False)
            self.assertNotEqual(done.returncode, 0, name)
        self.assertFalse((self.work / "x").exists())

    def test_ids_may_have_letters_digits_and_a_few_marks(self):
        self.assertEqual(self.said("echo yes", name=self.marked("A_b-1.2+z")), "yes")

    def marked(self, text):
        self.names.append(text)
        return text


class StartAndEnd(Case):
    def test_start_twice_is_an_error_without_effect(self):
        name = self.sleeper()
        pid = self.pid(name)
        self.assertNotEqual(self.runtime.call("start", name, check=False).returncode, 0)
        self.assertEqual(self.pid(name), pid)
        self.assertEqual(self.runtime.status(name), "running")

    def test_start_of_a_stopped_one_is_an_error(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.assertNotEqual(self.runtime.call("start", name, check=False).returncode, 0)
        self.assertEqual(self.runtime.status(name), "stopped")

    def test_start_of_nobody_is_an_error(self):
        self.assertNotEqual(self.runtime.call("start", "nobody", check=False).returncode, 0)

    def test_start_without_a_process_is_an_error(self):
        config = base_config()
        del config["process"]
        self.bundle.write(config)
        name = self.name()
        created = self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, name, check=False)
        if created.returncode == 0:
            self.assertNotEqual(self.runtime.call("start", name, check=False).returncode, 0)

    def test_the_exit_code_of_run_is_the_programs(self):
        for code in (0, 1, 7, 255):
            self.assertEqual(self.run_to_end(f"exit {code}", check=False).returncode, code)

    def test_a_signal_is_128_more(self):
        config = shell_config("kill -KILL $$")
        without_namespace(config, "pid")
        self.assertEqual(self.run_to_end(config, check=False).returncode, 128 + signal.SIGKILL)

    def test_run_leaves_nothing(self):
        self.run_to_end("true")
        self.assertIsNone(self.runtime.status(self.names[-1]))
        self.assertEqual(list(self.runtime.state_directory.glob("*/")), [])

    def test_run_detached_comes_back_at_once(self):
        self.bundle.write(shell_config("echo up; sleep 100"))
        name = self.name()
        self.runtime.call_to_file(self.output_file, "run", "--detach", "--bundle", self.bundle.path, name)
        self.assertEqual(self.runtime.status(name), "running")

    def test_run_passes_signals_on(self):
        self.bundle.write(shell_config("trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.02; done"))
        running = subprocess.Popen(self.runtime.words("run", "--bundle", self.bundle.path, self.name()), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        self.assertEqual(running.stdout.readline(), "up\n")
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.communicate(timeout=20)[0], "got\n")
        self.assertEqual(running.returncode, 3)

    def test_run_gives_the_program_its_standard_input(self):
        self.assertEqual(self.run_to_end("cat", input="words").stdout, "words")


class Kill(Case):
    def test_signals_have_names_and_numbers(self):
        for signal_name in ("USR1", "SIGUSR1", "10"):
            name = self.start(shell_config("trap 'echo got; exit' USR1; echo up; while :; do sleep 0.02; done"))
            wait_for(lambda: "up" in self.output(), "the program")
            self.runtime.call("kill", name, signal_name)
            wait_for(lambda: "got" in self.output(), f"the signal {signal_name}")
            self.runtime.wait_status(name, "stopped")
            self.runtime.call("delete", name)
            self.output_file.unlink()

    def test_the_signal_is_sigterm_by_default(self):
        name = self.sleeper()
        self.runtime.call("kill", name)
        self.runtime.wait_status(name, "stopped")

    def test_an_unknown_signal_is_an_error_without_effect(self):
        name = self.sleeper()
        for word in ("NOSUCH", "9999", "-1"):
            self.assertNotEqual(self.runtime.call("kill", name, word, check=False).returncode, 0, word)
        self.assertEqual(self.runtime.status(name), "running")

    def test_a_created_container_can_be_killed(self):
        name = self.create(base_config("true"))
        self.runtime.call("kill", name, "KILL")
        self.runtime.wait_status(name, "stopped")

    def test_a_sigkill_ends_what_no_pid_namespace_ends(self):
        for first_lives in (True, False):
            name = self.sleeper(lambda config: without_namespace(config, "pid"))
            self.runtime.call_to_file(self.work / "exec", "exec", "--detach", "--pid-file", self.work / "pid", name, "sleep", "1000")
            if not first_lives:
                os.kill(self.pid(name), signal.SIGKILL)
                self.runtime.wait_status(name, "stopped")
            self.runtime.call("kill", name, "KILL")
            wait_for(lambda: not is_alive(int((self.work / "pid").read_text())), "the end of the other process")
            self.runtime.wait_status(name, "stopped")
            self.runtime.call("delete", name)
            self.output_file.unlink()

    def test_kill_of_a_stopped_one_is_an_error(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.assertNotEqual(self.runtime.call("kill", name, "TERM", check=False).returncode, 0)

    def test_kill_of_nobody_is_an_error(self):
        self.assertNotEqual(self.runtime.call("kill", "nobody", "TERM", check=False).returncode, 0)

    def test_all_reaches_every_process(self):
        config = shell_config("sleep 1000 & echo $!; trap '' TERM; while :; do sleep 0.02; done")
        without_namespace(config, "pid")
        name = self.start(config)
        child = int(wait_for(lambda: self.output().strip(), "the child"))
        self.runtime.call("kill", "--all", name, "KILL")
        wait_for(lambda: not is_alive(child), "the end of the child")
        self.runtime.wait_status(name, "stopped")


class Delete(Case):
    def test_a_running_one_is_an_error_without_effect(self):
        name = self.sleeper()
        self.assertNotEqual(self.runtime.call("delete", name, check=False).returncode, 0)
        self.assertEqual(self.runtime.status(name), "running")

    def test_a_created_one_is_an_error_without_effect(self):
        name = self.create(base_config("true"))
        self.assertNotEqual(self.runtime.call("delete", name, check=False).returncode, 0)
        self.assertEqual(self.runtime.status(name), "created")

    def test_force_ends_what_runs(self):
        name = self.sleeper()
        pid = self.pid(name)
        self.runtime.call("delete", "--force", name)
        self.assertFalse(is_alive(pid))
        self.assertIsNone(self.runtime.status(name))

    def test_force_of_nobody_is_no_error(self):
        self.runtime.call("delete", "--force", "nobody")

    def test_nobody_is_an_error(self):
        self.assertNotEqual(self.runtime.call("delete", "nobody", check=False).returncode, 0)

    def test_the_id_can_be_used_again(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", name)
        self.create(base_config("true"), name=name)
        self.assertEqual(self.runtime.status(name), "created")

    def test_what_create_did_not_make_is_not_deleted(self):
        directory = self.work / "data"
        directory.mkdir()
        (directory / "kept").write_text("kept")
        config = base_config("true")
        config["mounts"].append({"destination": "/data", "type": "bind", "source": str(directory), "options": ["bind"]})
        name = self.start(config)
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", name)
        self.assertEqual((directory / "kept").read_text(), "kept")
        self.assertTrue((self.bundle.rootfs / "bin/busybox").exists())

    def test_processes_that_outlive_init_go_with_it(self):
        config = shell_config("setsid sleep 1000 & echo $!")
        without_namespace(config, "pid")
        name = self.start(config)
        child = int(wait_for(lambda: self.output().strip(), "the child"))
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", "--force", name)
        wait_for(lambda: not is_alive(child), "the end of the child")

    def test_a_container_whose_bundle_is_gone_can_be_deleted(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        shutil.rmtree(self.bundle.path)
        self.runtime.call("delete", name)
        self.assertIsNone(self.runtime.status(name))


class ListAndPs(Case):
    def test_list_tells_every_container(self):
        first, second = self.create(base_config("true")), self.create(base_config("true"))
        rows = json.loads(self.runtime.call("list", "--format", "json").stdout)
        self.assertEqual({row["id"]: row["status"] for row in rows}, {first: "created", second: "created"})
        self.assertEqual(sorted(self.runtime.call("list", "--quiet").stdout.split()), sorted((first, second)))

    def test_ps_tells_the_processes(self):
        name = self.sleeper()
        pids = json.loads(self.runtime.call("ps", "--format", "json", name).stdout)
        self.assertIn(self.pid(name), pids)
        self.assertIn("PID", self.runtime.call("ps", name).stdout)


class Waiting(Case):
    def test_a_created_one_has_no_descriptors_of_the_hosts_files(self):
        with open("/etc/hostname") as inherited:
            name = self.create(base_config("true"), pass_fds=[inherited.fileno()])
        directory = pathlib.Path(f"/proc/{self.pid(name)}/fd")
        open_files = {path.name: os.readlink(path) for path in directory.iterdir()}
        for number in "012":
            open_files.pop(number)
        allowed = re.compile(r"(socket|pipe|anon_inode):.*|/memfd:.*|.*/exec\.fifo|/|/proc|(/proc)?/1/task/1/fd")
        self.assertEqual({number: path for number, path in open_files.items() if not allowed.fullmatch(path)}, {})

    def test_a_created_one_ends_at_a_sigterm(self):
        name = self.create(base_config("true"))
        self.runtime.call("kill", name, "TERM")
        self.runtime.wait_status(name, "stopped")

    def test_a_pidfd_goes_to_a_socket(self):
        with PidfdSocket(self.work / "pidfd") as receiver:
            name = self.create(base_config("true"), "--pidfd-socket", receiver.path)
            self.assertEqual(receiver.pid(), self.pid(name))

    def test_a_pidfd_socket_that_is_not_there_is_an_error(self):
        self.bundle.write(base_config("true"))
        done = self.runtime.call("create", "--bundle", self.bundle.path, "--pidfd-socket", self.work / "nothing", self.name(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIsNone(self.runtime.status(self.names[-1]))
