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
    """Files of saved states by key. Made at the first use; removed at exit and on SIGTERM. kvcheck removes what a process
    leaves that it kills, by the number in the name; anything else the next process does: a living one holds a lock."""

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
            try:
                _remove(self._path)
            except OSError:
                shutil.rmtree(self._path, ignore_errors=True)
            self._path = None

    def _make(self):
        _sweep()
        while self._path is None:
            path = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            try:
                self._lock = open(path / "lock", "w")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                # Another process may have taken it for one that was left behind.
                if os.path.samestat(os.fstat(self._lock.fileno()), os.stat(path / "lock")):
                    self._path = path
            except FileNotFoundError:
                continue
        atexit.register(self.remove)
        signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number, frame):
        self.remove()
        os._exit(128 + number)


def _remove(folder):
    """The lock goes last: what is left where this is cut short can be told from a folder in use."""
    for file in folder.iterdir():
        if file.name != "lock":
            shutil.rmtree(file, ignore_errors=True) if file.is_dir() else file.unlink(missing_ok=True)
    (folder / "lock").unlink(missing_ok=True)
    folder.rmdir()


def _sweep():
    for folder in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            if not (folder / "lock").exists():
                # Its first file is the lock: this one was left behind, or is just being made and then made again.
                shutil.rmtree(folder, ignore_errors=True)
                continue
            with open(folder / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
        except OSError:  # in use, or of somebody else
            continue
