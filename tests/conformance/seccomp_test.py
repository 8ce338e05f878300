"""config-linux.json: seccomp."""
import array
import fcntl
import json
import os
import signal
import socket
import struct
import threading

from bundle import base_config, shell_config
from case import Case

SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND = 0xC0502100, 0xC0182101
NOTIFICATION, RESPONSE = "=QII iIQ6Q", "=QqiI"
FLAG_CONTINUE = 1


class Filter(Case):
    def filtered(self, script, *rules, default="SCMP_ACT_ALLOW", **more):
        config = shell_config(script)
        config["linux"]["seccomp"] = {"defaultAction": default, "architectures": ["SCMP_ARCH_X86_64"], "syscalls": list(rules), **more}
        return config

    def rule(self, *names, action="SCMP_ACT_ERRNO", **more):
        return {"names": list(names), "action": action, **more}

    def test_a_call_is_refused(self):
        config = self.filtered("mkdir /yard/x 2>&1; [ -d /yard/x ] || echo none", self.rule("mkdir", "mkdirat"))
        said = self.said(config)
        self.assertIn("Operation not permitted", said)
        self.assertIn("none", said)

    def test_the_error_can_be_chosen(self):
        config = self.filtered("mkdir /yard/x 2>&1; true", self.rule("mkdir", "mkdirat", errnoRet=28))
        self.assertIn("No space left", self.said(config))

    def test_arguments_are_compared(self):
        rule = self.rule("kill", args=[{"index": 1, "value": signal.SIGUSR1, "op": "SCMP_CMP_EQ"}])
        config = self.filtered("trap 'echo usr2' USR2; kill -USR1 $$ 2>/dev/null || echo refused; kill -USR2 $$", rule)
        self.assertEqual(self.said(config).split(), ["refused", "usr2"])

    def test_each_comparison(self):
        """The second argument of kill, SIGUSR1 (10)."""
        rows = [("SCMP_CMP_NE", 10, 0, False), ("SCMP_CMP_NE", 11, 0, True), ("SCMP_CMP_LT", 11, 0, True), ("SCMP_CMP_LT", 10, 0, False),
                ("SCMP_CMP_LE", 10, 0, True), ("SCMP_CMP_LE", 9, 0, False), ("SCMP_CMP_GT", 9, 0, True), ("SCMP_CMP_GT", 10, 0, False),
                ("SCMP_CMP_GE", 10, 0, True), ("SCMP_CMP_GE", 11, 0, False), ("SCMP_CMP_MASKED_EQ", 2, 2, True),
                ("SCMP_CMP_MASKED_EQ", 2, 0, False)]
        for operator, value, second, refused in rows:
            with self.subTest(f"{operator} {value} {second}"):
                rule = self.rule("kill", args=[{"index": 1, "value": value, "valueTwo": second, "op": operator}])
                config = self.filtered("trap 'echo got' USR1; kill -USR1 $$ 2>/dev/null || echo refused", rule)
                self.assertEqual(self.said(config), "refused" if refused else "got")

    def test_a_list_of_what_is_allowed(self):
        names = """access arch_prctl brk capget capset chdir clone close dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait execve exit
        exit_group faccessat faccessat2 fchdir fchown fcntl fstat fstatfs fsetxattr futex getcwd getdents64 getegid geteuid getgid getpid
        getppid getrandom getsockopt gettid gettimeofday getuid ioctl lseek lstat madvise mkdir mmap mount mprotect munmap nanosleep
        newfstatat open openat openat2 pipe pipe2 poll prctl prlimit64 pselect6 read readlink readlinkat recvfrom recvmsg rseq
        rt_sigaction rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield seccomp sendmsg sendto set_robust_list set_tid_address
        setgid setgroups setresgid setresuid setsid setuid sigaltstack socket socketpair stat statfs statx sysinfo tgkill time umask
        uname unlink unlinkat wait4 waitid write writev close_range pidfd_open clock_gettime clock_nanosleep setpgid getpgrp
        exit epoll_wait eventfd2 rt_sigtimedwait rt_sigsuspend kill geteuid sendfile fork vfork clone3 pread64""".split()
        config = self.filtered("echo fine; chmod 600 /etc/passwd 2>/dev/null || echo refused",
                               self.rule(*names, action="SCMP_ACT_ALLOW"), default="SCMP_ACT_ERRNO")
        self.assertEqual(self.said(config).split(), ["fine", "refused"])

    def test_kill(self):
        for action in ("SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"):
            with self.subTest(action):
                config = self.filtered("mkdir /yard/x; echo code $?", self.rule("mkdir", "mkdirat", action=action))
                config["process"]["args"][2] = "(exec mkdir /yard/x); echo code $?"
                self.assertIn("code 159", self.run_to_end(config).stdout)

    def test_log_lets_through(self):
        config = self.filtered("mkdir /yard/x && echo made", self.rule("mkdir", "mkdirat", action="SCMP_ACT_LOG"))
        self.assertEqual(self.said(config), "made")

    def test_the_filter_is_there_without_no_new_privileges_too(self):
        config = self.filtered("mkdir /yard/x 2>/dev/null || echo refused; grep NoNewPrivs /proc/self/status", self.rule("mkdir", "mkdirat"))
        config["process"]["noNewPrivileges"] = False
        self.assertEqual(self.said(config).split(), ["refused", "NoNewPrivs:", "0"])

    def test_an_unprivileged_user_has_it(self):
        config = self.filtered("mkdir /tmp/x 2>/dev/null || echo refused", self.rule("mkdir", "mkdirat"))
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        for value in (True, False):
            config["process"]["noNewPrivileges"] = value
            self.assertEqual(self.said(config), "refused")

    def test_unknown_calls_are_passed_over(self):
        """Of those that are allowed: left out, they are refused all the same."""
        config = self.filtered("echo fine", self.rule("no_such_call", action="SCMP_ACT_ALLOW"),
                               self.rule("mkdir", "no_such_call_either", action="SCMP_ACT_LOG"))
        self.assertEqual(self.said(config), "fine")

    def test_unknown_words_are_errors(self):
        for change in ({"defaultAction": "SCMP_ACT_NOSUCH"}, {"architectures": ["SCMP_ARCH_NOSUCH"]},
                       {"syscalls": [self.rule("mkdir", action="SCMP_ACT_NOSUCH")]},
                       {"syscalls": [self.rule("mkdir", args=[{"index": 0, "value": 1, "op": "SCMP_CMP_NOSUCH"}])]},
                       {"flags": ["SECCOMP_FILTER_FLAG_NOSUCH"]}):
            config = base_config("true")
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", **change}
            self.refused(config)

    def test_flags(self):
        config = self.filtered("echo fine", flags=["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW"])
        self.assertEqual(self.said(config), "fine")


class Notify(Case):
    """A listener that answers mkdir itself: it gets the descriptor and the state over the socket."""

    def serve(self, listener, seen):
        connection, _ = listener.accept()
        with connection:
            text, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(16))
            fds = array.array("i")
            for _, _, data in ancillary:
                fds.frombytes(data[:len(data) - len(data) % 4])
            while True:  # the state may come in parts
                try:
                    seen["state"] = json.loads(text)
                    break
                except ValueError:
                    more = connection.recv(1 << 16)
                    if not more:
                        return
                    text += more
        seen["fds"] = len(fds)
        buffer = bytearray(struct.calcsize(NOTIFICATION))
        fcntl.ioctl(fds[0], SECCOMP_IOCTL_NOTIF_RECV, buffer)
        number = struct.unpack(NOTIFICATION, buffer)[0]
        fcntl.ioctl(fds[0], SECCOMP_IOCTL_NOTIF_SEND, bytearray(struct.pack(RESPONSE, number, 0, -28, 0)))
        for fd in fds:
            os.close(fd)

    def test_a_listener_gets_the_descriptor_and_the_state(self):
        seen = {}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.work / "listener"))
            listener.listen()
            server = threading.Thread(target=self.serve, args=(listener, seen), daemon=True)
            server.start()
            config = shell_config("mkdir /yard/x 2>&1; true")
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": str(self.work / "listener"),
                                          "listenerMetadata": "some text",
                                          "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_NOTIFY"}]}
            said = self.said(config)
            server.join(10)
        self.assertIn("No space left", said)
        state = seen["state"]
        self.assertEqual(state["fds"][0], "seccompFd")
        self.assertEqual(seen["fds"], len(state["fds"]))
        self.assertEqual(state["metadata"], "some text")
        self.assertEqual(state["state"]["id"], self.names[-1])
        self.assertRegex(state["ociVersion"], r"^1\.")
        self.assertGreater(state["pid"], 0)

    def test_notify_without_a_listener_is_an_error(self):
        config = base_config("true")
        config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}]}
        self.refused(config)

    def test_a_listener_that_is_not_there_is_an_error(self):
        config = base_config("true")
        config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": str(self.work / "nobody"),
                                      "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}]}
        self.refused(config)
