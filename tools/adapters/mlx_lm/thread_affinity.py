"""Pins the thread on which MLX evaluates to the processor of the thread that waits for it.

MLX hands each primitive to that thread and wakes it. For arrays of some hundred bytes waking costs more than the work: on
another processor it sleeps and is woken for each one, on the same one it takes the processor away each time. As a thread
of the policy "batch" on the same processor it begins when the other one waits, and finds all primitives there.

What is computed is the same. Where the system cannot do it, nothing is done.
"""
import ctypes
import os

import mlx.core as mx


class ThreadAffinity:
    def __init__(self):
        self._processor = None
        self._threads = []
        try:
            self._current = ctypes.CDLL(None).sched_getcpu
            before = set(os.listdir("/proc/self/task"))
            mx.eval(mx.zeros((1,)) + 1)
            self._threads = [int(name) for name in set(os.listdir("/proc/self/task")) - before]
            for thread in self._threads:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            self.follow()
        except (AttributeError, OSError):
            self._threads = []

    def follow(self):
        """Where the calling thread is now."""
        if not self._threads:
            return
        processor = self._current()
        if processor != self._processor:
            self._processor = processor
            try:
                for thread in self._threads:
                    os.sched_setaffinity(thread, {processor})
            except OSError:
                self._threads = []
