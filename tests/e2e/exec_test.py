"""Commands, through the socket."""
import json
import os
import socket
import threading
import time
import unittest

from daemon import DaemonCase, host_processes, wait_until


def number(offset):
    """A length of sleep that no other test uses."""
    return str(100000 + os.getpid() * 20 + offset)


class Exec(DaemonCase):
    def setUp(self):
        super().setUp()
        self.id = self.sandbox()

    def exec(self, command, **fields):
        return self.client.exec(self.id, command, **fields)

    def test_exit_code_and_streams(self):
        result = self.exec("echo out; echo err >&2; exit 3")
        self.assertEqual((result["exit_code"], result["signal"], result["cause"]), (3, None, "exited"))
        self.assertEqual((result["stdout"], result["stderr"]), ("out\n", "err\n"))
        self.assertEqual((result["stdout_bytes"], result["stderr_bytes"]), (4, 4))
        self.assertGreater(result["duration_ms"], 0)

    def test_arguments_are_passed_as_they_are(self):
        self.assertEqual(self.exec(["echo", "a  b", "$HOME", "*"])["stdout"], "a  b $HOME *\n")

    def test_a_signal_is_named(self):
        result = self.exec("kill -TERM $$")
        self.assertEqual((result["exit_code"], result["signal"], result["cause"]), (None, "SIGTERM", "signaled"))

    def test_no_signal_is_ignored_or_blocked(self):
        status = dict(line.split(":\t") for line in self.exec(["cat", "/proc/self/status"])["stdout"].splitlines() if line.startswith("Sig"))
        for name in ("SigIgn", "SigBlk", "SigPnd"):
            self.assertEqual(int(status[name], 16), 0, name)

    def test_a_time_out_kills_all_and_keeps_the_output(self):
        one, two = number(1), number(2)
        result = self.exec(f"echo partial; sleep {one} & sleep {two}", timeout_seconds=1)
        self.assertEqual((result["timed_out"], result["cause"], result["stdout"]), (True, "timed_out", "partial\n"))
        wait_until(lambda: not host_processes("sleep", one) + host_processes("sleep", two), "both sleeps are dead")
        self.assertEqual(self.exec("echo still here")["stdout"], "still here\n")

    def test_a_very_short_time_out(self):
        self.assertTrue(self.exec(["sleep", number(3)], timeout_seconds=0.05)["timed_out"])

    def test_long_output_is_cut_and_counted(self):
        result = self.exec("yes 0123456789 | head -c 10485760")
        self.assertEqual((result["stdout_bytes"], len(result["stdout"]), result["stdout_truncated"]), (10485760, 1048576, True))
        self.assertEqual(result["cause"], "exited")
        self.assertEqual(result["stdout"][:11], "0123456789\n")
        result = self.exec("yes | head -c 1000; echo end", max_output_bytes=100)
        self.assertEqual((result["stdout_bytes"], len(result["stdout"])), (1004, 100))
        self.assertTrue(result["stdout"].endswith("end\n"))

    def test_bytes_come_as_base64(self):
        result = self.exec(r"printf '\377\000\001'")
        self.assertEqual((result["stdout_encoding"], result["stdout"], result["stdout_bytes"]), ("base64", "/wAB", 3))

    def test_two_at_once_do_not_disturb_each_other(self):
        results = {}

        def run(name):
            client = self.daemon.client()
            results[name] = client.exec(self.id, f"for i in 1 2 3 4 5; do echo {name}; sleep 0.05; done")["stdout"]
            client.close()

        threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {name: f"{name}\n" * 5 for name in "abc"})

    def test_a_child_that_holds_the_pipes_delays_nothing(self):
        length = number(4)
        begin = time.monotonic()
        result = self.exec(f"sleep {length} & echo done")
        self.assertEqual((result["exit_code"], result["stdout"]), (0, "done\n"))
        self.assertLess(time.monotonic() - begin, 30)
        # The shell does not wait for it to execute.
        wait_until(lambda: len(host_processes("sleep", length)) == 1, "the child lives")
        self.assertEqual(self.client.get(self.id)["processes"], 1)

    def test_a_child_that_goes_on_writing_lives(self):
        result = self.exec("(sleep 0.2; yes x | head -c 300000; echo ok > /tmp/mark; sleep 100000) & exit 0")
        self.assertEqual(result["exit_code"], 0)
        wait_until(lambda: self.exec("cat /tmp/mark")["stdout"] == "ok\n", "the child finished writing")

    def test_a_finished_background_child_is_forgotten(self):
        self.exec("sleep 0.3 &")
        wait_until(lambda: self.client.get(self.id)["processes"] == 0, "its group is removed")

    def test_stdin(self):
        self.assertEqual(self.exec("cat")["stdout"], "")
        self.assertEqual(self.exec("cat", stdin="hello")["stdout"], "hello")
        text = "x" * 3000000
        result = self.exec("wc -c", stdin=text)
        self.assertEqual(result["stdout"].strip(), "3000000")
        self.assertEqual(self.exec(["cat"], stdin_base64="AAEC")["stdout"], "\0\1\2")
        self.assertEqual(self.exec("exec 0<&-; echo closed", stdin=text)["stdout"], "closed\n")

    def test_environment_workdir_and_user(self):
        base = self.exec("echo $LANG $TZ $HOME $USER; pwd; id -u; id -g")["stdout"].split()
        self.assertEqual(base, ["C.UTF-8", "UTC", "/home/sandbox", "sandbox", "/workspace", "1000", "1000"])
        result = self.exec("echo $A; pwd; id -u; id -g", env={"A": "1"}, workdir="/tmp", user="7:8")
        self.assertEqual(result["stdout"].split(), ["1", "/tmp", "7", "8"])
        self.assertEqual(self.exec("id -u; echo $HOME", user="root")["stdout"].split(), ["0", "/root"])

    def test_output_can_be_opened_again(self):
        self.assertEqual(self.exec("echo again > /dev/stdout")["stdout"], "again\n")

    def test_what_cannot_start_is_told_apart(self):
        path = f"/v1/sandboxes/{self.id}/exec"
        error = self.refused("command_not_found", "POST", path, {"command": ["no-such-program"]})
        self.assertEqual(error["errno"], "ENOENT")
        error = self.refused("command_not_executable", "POST", path, {"command": ["/etc"]})
        self.assertEqual(error["errno"], "EACCES")
        error = self.refused("invalid_argument", "POST", path, {"command": "true", "workdir": "/no/such"})
        self.assertEqual(error["field"], "workdir")
        self.assertEqual(self.exec("true")["exit_code"], 0)

    def test_wrong_requests_name_the_field(self):
        path = f"/v1/sandboxes/{self.id}/exec"
        self.assertEqual(self.refused("invalid_argument", "POST", path, {"command": "true", "colour": 1})["field"], "colour")
        self.assertEqual(self.refused("invalid_argument", "POST", path, {"command": []})["field"], "command")
        self.refused("invalid_argument", "POST", path, "{")
        self.refused("not_found", "POST", "/v1/sandboxes/sb-aaaaaaaaaaaaaaaa/exec", {"command": "true"})

    def test_a_client_that_hangs_up_kills_its_command(self):
        one, two = number(5), number(6)
        body = json.dumps({"command": f"sleep {one} & sleep {two}"}).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.daemon.socket)
        connection.sendall(b"POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (self.id.encode(), len(body), body))
        wait_until(lambda: host_processes("sleep", one) and host_processes("sleep", two), "the command runs")
        connection.close()
        wait_until(lambda: not host_processes("sleep", one) + host_processes("sleep", two), "the command is dead")
        self.assertEqual(self.exec("echo usable")["stdout"], "usable\n")

    def test_delete_answers_running_commands(self):
        results = []

        def run():
            client = self.daemon.client()
            results.append(client.exec(self.id, f"echo begun; sleep {number(7)}"))
            client.close()

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: host_processes("sleep", number(7)), "the command runs")
        self.client.delete(self.id)
        thread.join()
        self.assertEqual((results[0]["cause"], results[0]["stdout"]), ("sandbox_ended", "begun\n"))

    def test_zombies_are_reaped(self):
        for _ in range(5):
            self.exec("(sleep 0.01 &) ; true")
        time.sleep(0.2)
        init = self.client.get(self.id)["pid"]
        with open(f"/proc/{init}/task/{init}/children") as children:
            pids = children.read().split()
        states = []
        for pid in pids:
            with open(f"/proc/{pid}/stat") as stat:
                states.append(stat.read().rsplit(")", 1)[1].split()[0])
        self.assertNotIn("Z", states)


if __name__ == "__main__":
    unittest.main()
