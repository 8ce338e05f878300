"""process.terminal, consoleSize and the console socket."""
import os
import pty
import signal
import subprocess
import termios

from bundle import base_config, shell_config
from case import Case
from runtime import end
from terminal import ConsoleSocket, read_until


class Terminal(Case):
    def console(self):
        socket = ConsoleSocket(self.work / "console")
        self.addCleanup(socket.close)
        return socket

    def with_terminal(self, script, **process):
        config = shell_config(script)
        config["process"] |= {"terminal": True, **process}
        return config

    def test_the_terminal_is_sent_over_the_socket(self):
        console = self.console()
        name = self.create(self.with_terminal("tty; echo from inside; read line; echo got $line"), "--console-socket", console.path)
        master = console.take()
        self.assertTrue(os.isatty(master))
        self.runtime.call("start", name)
        self.assertIn("/dev/", console.read("inside"))
        os.write(master, b"words\n")
        self.assertIn("got words", console.read("got words"))
        self.runtime.wait_status(name, "stopped")

    def test_it_is_the_programs_controlling_terminal(self):
        console = self.console()
        name = self.create(self.with_terminal("trap 'echo interrupted; exit' INT; echo up >/dev/tty; while :; do sleep 0.02; done"),
                           "--console-socket", console.path)
        master = console.take()
        self.runtime.call("start", name)
        console.read("up")
        os.write(master, b"\x03")
        self.assertIn("interrupted", console.read("interrupted"))

    def test_its_size(self):
        console = self.console()
        name = self.create(self.with_terminal("stty size", consoleSize={"width": 123, "height": 45}), "--console-socket", console.path)
        console.take()
        self.runtime.call("start", name)
        self.assertIn("45 123", console.read("45 123"))

    def test_there_is_a_console_device(self):
        console = self.console()
        name = self.create(self.with_terminal("[ -c /dev/console ] && echo to console >/dev/console"), "--console-socket", console.path)
        console.take()
        self.runtime.call("start", name)
        self.assertIn("to console", console.read("to console"))

    def test_it_belongs_to_the_user(self):
        console = self.console()
        config = self.with_terminal("stat -c '%u end' $(tty)")
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        name = self.create(config, "--console-socket", console.path)
        console.take()
        self.runtime.call("start", name)
        self.assertIn("1000 end", console.read("end"))

    def test_create_without_a_socket_is_an_error(self):
        self.bundle.write(self.with_terminal("true"))
        name = self.name()
        self.assertNotEqual(self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, name, check=False).returncode, 0)
        self.assertIsNone(self.runtime.status(name))

    def test_a_socket_without_a_terminal_is_an_error(self):
        console = self.console()
        self.bundle.write(base_config("true"))
        name = self.name()
        done = self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, "--console-socket", console.path, name,
                                         check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIsNone(self.runtime.status(name))

    def test_exec_with_a_terminal(self):
        name = self.sleeper()
        console = self.console()
        self.runtime.call_to_file(self.work / "exec", "exec", "--tty", "--detach", "--console-socket", console.path, name, "sh", "-c",
                                  "tty; echo end; read x")
        console.take()
        self.assertIn("/dev/pts/", console.read("end"))

    def test_lines_that_are_relayed_end_as_they_were_written(self):
        done = self.run_to_end(self.with_terminal("echo one; echo two"))
        self.assertEqual(done.stdout, "one\ntwo\n")


class Foreground(Case):
    def run_in_terminal(self, script, *more_words):
        """`run` with our own pseudo terminal as its terminal; yields its other end."""
        config = shell_config(script)
        config["process"]["terminal"] = True
        self.bundle.write(config)
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (33, 77)) if hasattr(termios, "tcsetwinsize") else None
        self.addCleanup(os.close, master)
        before = termios.tcgetattr(slave)
        running = subprocess.Popen(self.runtime.words("run", "--bundle", self.bundle.path, *more_words, self.name()), stdin=slave,
                                   stdout=slave, stderr=slave, start_new_session=True,
                                   preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(end, running)
        return running, master, slave, before

    def test_input_and_output_pass_through(self):
        running, master, slave, before = self.run_in_terminal("read line; echo got $line; exit 5")
        os.write(master, b"words\n")
        self.assertIn("got words", read_until(master, "got words"))
        self.assertEqual(running.wait(10), 5)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(slave)

    def test_an_interrupt_reaches_the_program(self):
        running, master, slave, before = self.run_in_terminal("trap 'echo interrupted; exit 4' INT; echo up; while :; do sleep 0.02; done")
        read_until(master, "up")
        os.write(master, b"\x03")
        self.assertIn("interrupted", read_until(master, "interrupted"))
        self.assertEqual(running.wait(10), 4)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(slave)

    def test_the_size_follows(self):
        running, master, slave, _ = self.run_in_terminal("stty size; trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.02; done")
        self.assertIn("33 77", read_until(master, "up"))
        termios.tcsetwinsize(slave, (22, 66))
        running.send_signal(signal.SIGWINCH)
        self.assertIn("22 66", read_until(master, "22 66"))
        running.wait(10)
        os.close(slave)

    def test_a_failed_start_restores_the_terminal(self):
        (self.bundle.rootfs / "bin/sh").unlink()
        running, _, slave, before = self.run_in_terminal("true")
        self.assertEqual(running.wait(10), 1)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(slave)
