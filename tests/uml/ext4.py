"""Whether an ext4 file system is whole, of a device or an image that nobody writes to."""
import subprocess


def check(disk, copy):
    """Replays the journal as a mount would, on a copy, and finds nothing to mend; AssertionError with what e2fsck(8) says."""
    subprocess.run(["cp", "--sparse=always", disk, copy], check=True)
    try:
        subprocess.run(["/sbin/e2fsck", "-p", "-E", "journal_only", copy], stdout=subprocess.DEVNULL, check=False)
        found = subprocess.run(["/sbin/e2fsck", "-fn", copy], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    finally:
        copy.unlink()
    if found.returncode != 0:
        raise AssertionError(f"the file system of {disk} is broken:\n{found.stdout}")
