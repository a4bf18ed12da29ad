"""Saved states: a folder that goes when the process ends, and the damage that is done to files in it."""
import atexit
import fcntl
import os
import pathlib
import shutil
import signal
import tempfile

from .base import Unsupported

PREFIX = "kvcheck-adapter-"
FOREIGN = b"not a cache\n"


def damaged(data, how, at):
    """The bytes with one fault. truncate: the last byte is gone; flip: one bit of byte `at` (modulo what there is) is
    another; foreign: a file of somebody else."""
    if how == "truncate":
        return data[:-1]
    if how == "flip":
        changed = bytearray(data)
        if changed:
            changed[at % len(changed)] ^= 1 << (at % 8)
        return bytes(changed)
    if how == "foreign":
        return FOREIGN
    raise Unsupported(f"no damage of kind {how} to this library's files")


class Folder:
    """Files of saved states by key. Made at the first use; removed at exit and on SIGTERM. What a killed process left
    behind is removed by the next one: a living one holds a lock."""

    def __init__(self, suffix):
        self._suffix = suffix
        self._path = None
        self._lock = None

    def path(self, key):
        if self._path is None:
            self._make()
        return str(self._path / f"{key}{self._suffix}")

    def clear(self):
        if self._path is not None:
            for file in self._path.iterdir():
                if file.is_dir():
                    shutil.rmtree(file)
                elif file.name != "lock":
                    file.unlink()

    def replace(self, key, data):
        """Another file under the name: what was loaded may still be read from the old one."""
        beside = self.path(f"{key}.new")
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, self.path(key))

    def remove(self):
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None

    def _make(self):
        _sweep()
        self._path = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = open(self._path / "lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        atexit.register(self.remove)
        signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number, frame):
        self.remove()
        os._exit(128 + number)


def _sweep():
    for folder in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            with open(folder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, of somebody else, or just being made
            continue
