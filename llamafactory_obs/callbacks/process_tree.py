"""What the training process and its children (data loader workers) use, as totals that only grow."""

import os
from pathlib import Path

import psutil

#: workers are forked by a process' main thread; the children of its other threads are looked for once in so many times
_ALL_THREADS_EVERY = 10


class ProcessTree:
    """This process and its descendants.

    A child that runs in a session of its own is a companion (the probe), not a part of the training: left out.
    Totals include what ended children have used: Linux adds that to the parent that waited for them.
    """

    def __init__(self):
        self._own = psutil.Process()
        self._session = os.getsid(0) if hasattr(os, "getsid") else None
        self._known: dict[int, psutil.Process] = {self._own.pid: self._own}
        self._lists_children = Path(f"/proc/self/task/{self._own.pid}/children").exists()
        self._refreshed = 0

    def refresh(self) -> None:
        """See who has come and gone."""
        thorough = self._refreshed % _ALL_THREADS_EVERY == 0
        self._refreshed += 1
        if self._lists_children:
            found = self._descendants(self._own.pid, thorough)
        elif thorough:
            found = [child.pid for child in self._own.children(recursive=True) if self._is_ours(child.pid)]
        else:
            return
        known = {self._own.pid: self._own} if thorough else dict(self._known)
        for pid in found:
            try:
                known[pid] = self._known.get(pid) or psutil.Process(pid)
            except psutil.Error:
                continue  # gone in the meantime
        self._known = known

    def cpu_seconds(self) -> float:
        """User and system time."""
        return self._sum(lambda process: sum(process.cpu_times()[:4]))  # own and waited-for children

    def io_bytes(self) -> tuple[float, float]:
        """Bytes read from and written to storage; reads that the page cache answers are not counted.

        Raises:
            psutil.AccessDenied, AttributeError: the system keeps these to itself.
        """
        counters = [io for io in map(self._io, self._known.values()) if io is not None]
        return float(sum(io.read_bytes for io in counters)), float(sum(io.write_bytes for io in counters))

    def rss_bytes(self) -> float:
        """Resident memory; pages that forked processes share count once for each of them."""
        return self._sum(lambda process: process.memory_info().rss)

    def _sum(self, number) -> float:
        total = 0.0
        for process in self._known.values():
            try:
                total += number(process)
            except psutil.NoSuchProcess:
                continue
        return total

    @staticmethod
    def _io(process: psutil.Process):
        try:
            return process.io_counters()
        except psutil.NoSuchProcess:
            return None

    def _descendants(self, pid: int, thorough: bool) -> list[int]:
        """By the kernel's own lists of children, one for each thread: no walk over all processes of the host."""
        found = []
        try:
            threads = os.listdir(f"/proc/{pid}/task") if thorough else [pid]
        except OSError:
            return found
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                    children = file.read().split()
            except OSError:
                continue
            for child in map(int, children):
                if self._is_ours(child):
                    found += [child, *self._descendants(child, thorough)]
        return found

    def _is_ours(self, pid: int) -> bool:
        try:
            return self._session is None or os.getsid(pid) == self._session
        except OSError:
            return False
