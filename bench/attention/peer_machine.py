"""The machine on which peers.py measures: what else runs, its caches, its name."""

import os
import pathlib
import time

REST = 0.03  # seconds in which the threads of the last one cease to spin
OTHERWISE_CACHE = 32 << 20  # bytes, where the system does not say


class Quiet:
    """Runs what is measured while no other program uses the machine, and again where one did, for as long as there is
    patience left. Programs are told apart by their processor time, in ticks of 0.01 s."""

    def __init__(self, patience):
        self.at_once = patience == 0
        self.patience = patience  # seconds that may still be spent
        self.pids = [os.getpid()]

    def now(self):
        """(seconds, processor seconds of other programs); of those 0 where the system does not tell."""
        try:
            ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
            busy = sum(ticks[:3]) + sum(ticks[5:8])
            for pid in self.pids:
                words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                busy -= int(words[11]) + int(words[12])
            return time.monotonic(), busy / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return time.monotonic(), 0

    def wait(self):
        while not self.at_once:
            start, others = self.now()
            time.sleep(REST)
            end, others_then = self.now()
            if others_then - others < 0.015 or self.patience <= 0:
                return
            self.patience -= end - start

    def run(self, measure):
        """(what measure returns, cores that others used meanwhile), of the least disturbed of some attempts."""
        best = None
        for _ in range(5):
            self.wait()
            start, others = self.now()
            value = measure()
            end, others_then = self.now()
            used = max(0, others_then - others)
            if best is None or used / (end - start) < best[1]:
                best = value, used / (end - start)
            if used < 0.025 + 0.15 * (end - start) or self.patience <= 0:
                break
            self.patience -= end - start
        return best


def last_caches(threads):
    """Bytes of LLC that so many threads may have between them."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    caches = {}
    for cpu in range(os.cpu_count() or 1):
        try:
            last = max(pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"),
                       key=lambda index: int((index / "level").read_text()))
            size = (last / "size").read_text().strip()
            caches[(last / "shared_cpu_list").read_text()] = int(size[:-1]) * units[size[-1:]]
        except (OSError, ValueError, KeyError):
            continue  # the system does not say
    return sum(sorted(caches.values())[-threads:]) or OTHERWISE_CACHE


def enough_to_be_cold(threads):
    """Twice those; but a case has some fifteen entries, which have to fit the memory together."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 2 * last_caches(threads)
    return min(2 * last_caches(threads), memory // 24)


def machine():
    try:
        names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores"
