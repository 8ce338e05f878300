#!/usr/bin/env python3
"""The command line against the real daemon: live output, terminals, processes in the background."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from cli import HUTCH, PATIENCE, CliCase
from daemon import wait_until


class Terminal:
    """hutch under a pseudo-terminal, as its controlling terminal."""

    def __init__(self, environment, *words, rows=31, columns=97):
        self.main, self.side = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.side)
        self.seen = b""
        self.process = subprocess.Popen([HUTCH, *words], stdin=self.side, stdout=self.side, stderr=self.side, env=environment,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, rows, columns):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.main, text.encode())

    def read_until(self, pattern):
        """What stands there since the last call, up to and with the pattern."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern.encode(), self.seen)):
            if time.monotonic() > deadline or not select.select([self.main], [], [], PATIENCE)[0]:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
            self.seen += os.read(self.main, 65536)
        self.seen = self.seen[match.end():]
        return match

    def end(self):
        """The exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"hutch does not end: {self.seen!r}")
            if select.select([self.main], [], [], 0.05)[0]:
                self.seen += os.read(self.main, 65536)
        while select.select([self.main], [], [], 0.2)[0]:  # what it said last
            self.seen += os.read(self.main, 65536)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self.side)


class Streams(CliCase):
    def test_output_arrives_before_the_command_ends(self):
        box = self.sandbox()
        for words in (("exec", box), ("run", "busybox")):
            process = self.start(*words, "--timeout", "50", "--", "sh", "-c", "echo first; echo error >&2; sleep 40")
            self.assertEqual(os.read(process.stdout.fileno(), 100), b"first\n")
            self.assertEqual(os.read(process.stderr.fileno(), 100), b"error\n")
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.assertIn(process.wait(PATIENCE), (-signal.SIGTERM, 128 + signal.SIGTERM))
        wait_until(lambda: len(self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]) == 1, "run destroyed its sandbox")

    def test_streams_and_exit_codes_are_passed_on(self):
        box = self.sandbox()
        done = self.hutch("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, b"out\n", b"err\n"))
        done = self.hutch("exec", box, "--", "printf", r"\377\000\376")
        self.assertEqual(done.stdout, b"\xff\x00\xfe")
        self.assertEqual(self.hutch("exec", box, "--", "sh", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.hutch("exec", box, "--timeout", "0.2", "--", "sleep", "60").returncode, 124)
        self.assertEqual(self.hutch("exec", box, "--", "/absent").returncode, 127)
        self.assertEqual(self.hutch("exec", box, "--", "/etc/passwd").returncode, 126)
        self.assertEqual(self.hutch("exec", "absent", "--", "true").returncode, 125)

    def test_a_reader_that_goes_away_ends_the_command(self):
        box = self.sandbox()
        process = self.start("exec", box, "--", "yes")
        self.assertEqual(os.read(process.stdout.fileno(), 2), b"y\n")
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGPIPE)
        process.stdout = None
        wait_until(lambda: self.client.get(box)["processes"] == 0, "yes is gone")

    def test_interactive_input_is_passed_on_as_it_comes(self):
        box = self.sandbox()
        process = self.start("exec", "-i", box, "--", "cat", stdin=subprocess.PIPE)
        for line in (b"one\n", b"two\n"):
            os.write(process.stdin.fileno(), line)
            self.assertEqual(os.read(process.stdout.fileno(), 100), line)
        process.stdin.close()
        process.stdin = None
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(self.processes(box), [])

    def test_interactive_input_may_be_larger_than_any_body(self):
        box = self.sandbox()
        much = os.urandom(1 << 20) * 20
        done = self.hutch("exec", "-i", box, "--", "cat", stdin=much)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout == much)
        self.assertEqual(self.text("run", "-i", "busybox", "--", "wc", "-c", stdin=much), f"{len(much)}\n")

    def test_an_interrupted_interactive_exec_removes_its_process(self):
        box = self.sandbox()
        process = self.start("exec", "-i", box, "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.PIPE)
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"up\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGINT)
        self.assertEqual(self.processes(box), [])

    def test_a_command_may_be_left_waiting_in_the_background(self):
        box = self.sandbox()
        done = self.hutch("exec", box, "--wait", "0.5", "--", "sh", "-c", "echo begun; sleep 2; exit 6")
        self.assertEqual((done.returncode, done.stdout), (123, b"begun\n"))
        [process] = self.processes(box)
        self.assertIn(f"hutch wait {box} {process['id']}".encode(), done.stderr)
        self.assertEqual(self.hutch("wait", box, process["id"]).returncode, 6)
        self.assertEqual(self.hutch("exec", box, "--wait", "50", "--", "sh", "-c", "exit 5").returncode, 5)


class Processes(CliCase):
    def test_life_of_a_background_process(self):
        box = self.sandbox()
        process = self.text("exec", "-d", box, "--", "sh", "-c", "echo up; trap 'echo got; exit 9' TERM; while :; do sleep 0.1; done").strip()
        self.assertRegex(process, r"^p\d+$")
        self.assertRegex(self.text("ps", box), rf"PROCESS +STATE +EXIT +STARTED +COMMAND\n{process} +running +- +\d+s ago +sh -c 'echo up")
        wait_until(lambda: self.text("logs", box, process) == "up\n", "the log has its output")
        waiter = self.start("wait", box, process)
        self.assertEqual(self.hutch("kill", box, process).returncode, 0)
        self.assertEqual(waiter.wait(PATIENCE), 9)
        self.assertRegex(self.text("ps", box), rf"{process} +exited +9 ")
        self.assertEqual(self.text("logs", box, process), "up\ngot\n")
        self.assertEqual(self.text("logs", box, process, "--tail", "4"), "got\n")
        self.assertEqual(self.hutch("kill", "--rm", box, process).returncode, 0)
        self.assertEqual(self.text("ps", "-q", box), "")
        self.assertEqual(self.hutch("logs", box, process).returncode, 1)
        self.assertEqual(self.hutch("wait", box, process).returncode, 125)

    def test_signals_by_name_number_and_for_the_tree(self):
        box = self.sandbox()
        for words in (("-s", "SIGKILL"), ("-s", "9"), ("-s", "KILL", "--tree")):
            process = self.text("exec", "-d", box, "--", "sleep", "100").strip()
            self.assertEqual(self.hutch("kill", box, process, *words).returncode, 0)
            self.assertEqual(self.hutch("wait", box, process).returncode, 137, words)

    def test_logs_keep_streams_apart_and_can_be_followed(self):
        box = self.sandbox()
        process = self.text("exec", "-d", box, "--", "sh", "-c", "echo a; echo b >&2; sleep 2; echo c").strip()
        wait_until(lambda: self.hutch("logs", box, process).stderr == b"b\n", "both lines are in the log")
        self.assertEqual(self.hutch("logs", box, process).stdout, b"a\n")
        follower = self.start("logs", "-f", box, process)
        self.assertEqual(os.read(follower.stdout.fileno(), 100), b"a\n")
        out, err = follower.communicate(timeout=PATIENCE)
        self.assertEqual((follower.returncode, out, err), (0, b"c\n", b"b\n"))
        done = self.hutch("logs", box, process, "--stream", "stderr")
        self.assertEqual((done.stdout, done.stderr), (b"", b"b\n"))
        self.assertEqual(self.text("logs", box, process, "--since", "1h", "--stream", "stdout"), "a\nc\n")
        self.assertEqual(self.text("logs", box, process, "--since", "2099-01-01T00:00:00Z"), "")
        chunks = [json.loads(line) for line in self.text("logs", "--json", box, process).splitlines()]
        self.assertEqual("".join(chunk["data"] for chunk in chunks if chunk["stream"] == "stdout"), "a\nc\n")

    def test_long_logs_come_whole(self):
        box = self.sandbox()
        process = self.text("exec", "-d", box, "--", "seq", "400000").strip()
        self.assertEqual(self.hutch("wait", box, process).returncode, 0)
        self.assertEqual(self.text("logs", box, process), "".join(f"{n}\n" for n in range(1, 400001)))

    def test_attach_gives_input_and_passes_the_exit_code_on(self):
        box = self.sandbox()
        process = self.text("exec", "-d", "-i", box, "--", "sh", "-c", "read x; echo got $x; read y || exit 8").strip()
        done = self.hutch("attach", box, process, stdin=b"this\n")
        self.assertEqual((done.returncode, done.stdout), (8, b"got this\n"))
        process = self.text("exec", "-d", box, "--", "sh", "-c", "echo up; sleep 100").strip()
        attached = self.start("attach", box, process, stdin=subprocess.DEVNULL)
        self.assertEqual(os.read(attached.stdout.fileno(), 100), b"up\n")
        attached.send_signal(signal.SIGINT)
        self.assertEqual(attached.wait(PATIENCE), 128 + signal.SIGINT)
        self.assertEqual(self.processes(box)[-1]["state"], "running")


class TerminalCase(CliCase):
    def terminal(self, *words, **more):
        terminal = Terminal(self.environment(), *words, **more)
        self.addCleanup(terminal.close)
        return terminal


class Terminals(TerminalCase):
    def shell(self, *words):
        box = self.sandbox()
        terminal = self.terminal("exec", "-it", box, *words, "--", "sh")
        terminal.read_until(r"\$ ")
        return box, terminal

    def assert_as_before(self, terminal):
        self.assertEqual(termios.tcgetattr(terminal.side), terminal.before)

    def assert_raw(self, terminal):
        self.assertEqual(termios.tcgetattr(terminal.side)[3] & (termios.ICANON | termios.ECHO | termios.ISIG), 0)

    def test_a_shell_has_a_terminal_of_this_size(self):
        box, terminal = self.shell()
        self.assert_raw(terminal)
        terminal.type("test -t 0 && test -t 1 && test -t 2 && echo is-a-$((1))-terminal\n")
        terminal.read_until("is-a-1-terminal")
        terminal.type("stty size\n")
        terminal.read_until("31 97\r\n")
        terminal.resize(40, 120)
        wait_until(lambda: self.size(terminal) == "40 120", "the new size arrives")
        terminal.type("exit 7\n")
        self.assertEqual(terminal.end(), 7)
        self.assert_as_before(terminal)
        self.assertEqual(self.processes(box), [])

    @staticmethod
    def size(terminal):
        terminal.type("echo size=$(stty size).\n")
        return terminal.read_until(r"size=(\d+ \d+)\.").group(1).decode()

    def test_control_c_reaches_the_foreground_job_and_the_shell_lives_on(self):
        box, terminal = self.shell()
        terminal.type("echo be$((1))gun; sleep 100\n")
        terminal.read_until("be1gun")
        # Between its fork and its exec the job still has the shell's handler, which would swallow the signal.
        wait_until(lambda: self.hutch("exec", box, "--", "pidof", "sleep").returncode == 0, "the job runs")
        terminal.type("\x03")
        terminal.type("echo code=$?=\n")
        terminal.read_until("code=130=")
        terminal.read_until(r"\$ \x1b\[6n")  # the shell reads keys by itself from here on
        terminal.type("\x04")
        terminal.end()
        self.assert_as_before(terminal)

    def test_every_signal_restores_the_terminal(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGQUIT, -signal.SIGQUIT),
                             (signal.SIGABRT, -signal.SIGABRT), (signal.SIGSEGV, -signal.SIGSEGV), (signal.SIGUSR1, -signal.SIGUSR1)):
            with self.subTest(signal=number):
                box, terminal = self.shell()
                self.assert_raw(terminal)
                terminal.process.send_signal(number)
                self.assertEqual(terminal.end(), code)
                self.assert_as_before(terminal)
                if code > 0:
                    self.assertEqual(self.processes(box), [])

    def test_a_stopped_hutch_gives_the_terminal_back_and_takes_it_again(self):
        _, terminal = self.shell()
        terminal.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: pathlib.Path(f"/proc/{terminal.process.pid}/stat").read_text().split()[2] == "T", "it is stopped")
        self.assert_as_before(terminal)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.type("echo on=$((2))=\n")
        terminal.read_until("on=2=")
        self.assert_raw(terminal)

    def test_the_detach_keys_leave_it_running(self):
        box, terminal = self.shell()
        terminal.type("echo kept=$((3))=\n")
        terminal.read_until("kept=3=")
        terminal.type("\x10\x11")
        self.assertEqual(terminal.end(), 0)
        self.assert_as_before(terminal)
        [process] = self.processes(box)
        self.assertEqual(process["state"], "running")
        self.assertIn(f"hutch attach {box} {process['id']}".encode(), terminal.seen)
        again = self.terminal("attach", box, process["id"], rows=20, columns=50)
        again.read_until("kept=3=")
        wait_until(lambda: self.size(again) == "20 50", "its size is that of the new terminal")
        again.type("exit 5\n")
        self.assertEqual(again.end(), 5)
        self.assert_as_before(again)

    def test_a_control_p_that_nothing_follows_is_typed(self):
        box = self.sandbox()
        terminal = self.terminal("exec", "-it", box, "--", "sh", "-c", "stty raw -echo; echo up; head -c 1 | od -An -tx1")
        terminal.read_until("up")
        terminal.type("\x10")
        terminal.read_until("10")

    def test_shell_falls_back_to_sh(self):
        box = self.sandbox()
        terminal = self.terminal("shell", box, "-e", "MARK=here", "-w", "/tmp")
        terminal.type("echo mark=$MARK=$(pwd)=\n")
        terminal.read_until("mark=here=/tmp=")
        terminal.type("exit 4\n")
        self.assertEqual(terminal.end(), 4)

    def test_run_gives_a_terminal_and_destroys_its_sandbox(self):
        terminal = self.terminal("run", "-it", "busybox")
        terminal.type("stty size; exit 3\n")
        terminal.read_until("31 97")
        self.assertEqual(terminal.end(), 3)
        self.assert_as_before(terminal)
        self.assertEqual(self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"], [])

    def test_a_pipe_is_no_terminal(self):
        box = self.sandbox()
        for words in (("exec", "-it", box, "--", "sh"), ("shell", box), ("run", "-it", "busybox")):
            done = self.hutch(*words)
            self.assertEqual((done.returncode, b"no terminal" in done.stderr), (125, True), words)


class DaemonGone(TerminalCase):
    def test_a_killed_daemon_leaves_the_terminal_as_it_was(self):
        box = self.sandbox()
        terminal = self.terminal("exec", "-it", box, "--", "sh")
        terminal.read_until(r"\$ ")
        self.daemon.kill()
        self.addCleanup(self.daemon.start)
        self.assertEqual(terminal.end(), 125)
        self.assertEqual(termios.tcgetattr(terminal.side), terminal.before)
        terminal.read_until("the daemon went away")


if __name__ == "__main__":
    unittest.main()
