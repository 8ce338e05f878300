"""CVE-2019-5736: a container never gets to write to the runtime's own program."""
import hashlib
import pathlib
import shutil

from attack import EVIL_SCRIPT, plant_library
from bundle import base_config, shell_config
from case import Case
from runtime import Runtime, program_path, wait_for


class Program(Case):
    """The runtime is a copy, so that a weak one harms nobody."""

    def setUp(self):
        super().setUp()
        self.program = self.work / pathlib.Path(program_path()).name
        shutil.copy(program_path(), self.program)
        self.runtime = Runtime(self.work / "state", str(self.program))
        self.before = self.digest()

    def digest(self):
        return hashlib.sha256(self.program.read_bytes()).hexdigest()

    def config(self, *words):
        plant_library(self.bundle.rootfs, self.program)
        config = base_config(*words)
        config["process"]["env"].append("LD_PRELOAD=/evil.so")
        return config

    def test_exe_overwrite_create(self):
        self.run_to_end(self.config("/proc/self/exe", "--version"), check=False)
        self.assertEqual(self.digest(), self.before)

    def test_exe_overwrite_create_by_an_interpreter(self):
        script = self.bundle.rootfs / "entry"
        script.write_text("#!/proc/self/exe\n")
        script.chmod(0o755)
        self.run_to_end(self.config("/entry"), check=False)
        self.assertEqual(self.digest(), self.before)

    def test_exe_overwrite_exec(self):
        plant_library(self.bundle.rootfs, self.program)
        name = self.sleeper()
        for words in (("/proc/self/exe", "--version"), ("/proc/self/exe", "init")):
            self.runtime.call("exec", "--env", "LD_PRELOAD=/evil.so", name, *words, check=False)
        self.assertEqual(self.digest(), self.before)

    def test_exe_overwrite_exec_by_a_watcher(self):
        """Init opens whatever program appears in its pid namespace and writes to it once it can."""
        (self.bundle.rootfs / "attack.sh").write_text(EVIL_SCRIPT)
        script = ("trap 'exit 0' TERM; echo up; while :; do for p in /proc/[0-9]*/exe; do case $(readlink $p) in */busybox | '') ;; "
                  "*) (exec 9<$p && echo seen && sh /attack.sh) 2>/dev/null;; esac; done; done")
        name = self.start(shell_config(script))
        wait_for(lambda: "up" in self.output(), "the watcher")
        for _ in range(8):
            self.runtime.call("exec", name, "true", check=False)
        self.assertEqual(self.digest(), self.before)
