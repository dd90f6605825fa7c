"""What `llamafactory-obs board` costs: the server, the training beside it, and the page.

    python bench/board.py                 all three
    python bench/board.py --seconds 8     seconds of each stretch (default: 8)

The record is one of a 3-hour run (20,000 steps with 25 columns, 200 probes on 8 checkpoints, 40 layers) that goes on
growing. **Server**: its CPU seconds per second without a viewer, with 1 and with 20; a viewer asks like the page, every
2 s over a connection that it keeps, compressed. **Training**: steps of a fixed amount of arithmetic that write their
rows as the recorder does, in short turns while the board and 20 viewers (on the same machine) stand still and while
they run: wall and CPU time of a step. **Page**: from the navigation to painted curves, in Chromium, of a board that was
started just then and of one that has read the record; twice, the better one.
"""

import argparse
import gzip
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from page_folder import event, layers, probe, record, row

from llamafactory_obs.record.writer import RecordWriter


def long_record(folder: Path) -> Path:
    """Three hours of a run at about two steps a second."""
    start = time.time() - 10_800
    more = {f"data/column_{i}": 0.5 for i in range(4)}
    rows = [row(step, time=start + step * 0.54, **more) for step in range(1, 20_001)]
    for at in range(499, 20_000, 500):
        rows[at]["eval/loss"] = 2.0 - at / 20_000
    names = [f"layers.{i}" for i in range(40)]
    probes = [
        probe(at, f"p{i}", (i + at) % 3 == 0, f"{at} {i} " * 60) for at in range(2500, 20_001, 2500) for i in range(200)
    ]
    events = [event(0, kind="start", time=start, evidence={"max_steps": 30_000})]
    events += [event(at, "warn", time=start + at * 0.54) for at in range(50, 20_000, 50)]
    return record(folder, steps=rows, events=events, probes=probes, layers=layers(list(range(1, 20_001, 20)), names))


class Server:
    """The verb, in a process of its own."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "llamafactory_obs.cli", "board", str(folder), "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        text = ""
        while not text.endswith("\n}\n"):
            text += self._process.stdout.readline()
        self.port = json.loads(text)["port"]
        self.cpu = psutil.Process(self._process.pid)

    def seconds(self) -> float:
        """CPU seconds so far, of the server alone: `diagnose` runs seldom and in another process."""
        times = self.cpu.cpu_times()
        return times.user + times.system

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._process.wait(10)


class Viewers:
    """So many pages that look on, begun at different moments, as people's are."""

    def __init__(self, port: int, count: int):
        self._end = threading.Event()
        self.answers, self.bytes = 0, 0
        self._threads = [
            threading.Thread(target=self._look, args=(port, number / max(1, count)), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _look(self, port: int, share: float) -> None:
        self._end.wait(2 * share)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        since, board, have = 0, "", ""
        while not self._end.is_set():
            connection.request(
                "GET", f"/api/state?since={since}&board={board}&have={have}", headers={"Accept-Encoding": "gzip"}
            )
            answer = connection.getresponse()
            body = answer.read()
            self.answers, self.bytes = self.answers + 1, self.bytes + len(body)
            state = json.loads(gzip.decompress(body) if answer.getheader("Content-Encoding") else body)
            since, board, have = state["tick"], state["board"], ",".join(state["chosen"])
            self._end.wait(2)
        connection.close()

    def __enter__(self) -> "Viewers":
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(10)


class Growing:
    """Rows at two a second, from a thread."""

    def __init__(self, folder: Path, first: int):
        self._end, self._folder, self._first = threading.Event(), folder, first
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        writer = RecordWriter(self._folder, True, lambda line: None)
        step = self._first
        while not self._end.wait(0.5):
            writer.append("steps.jsonl", row(step, time=time.time()))
            step += 1

    def __enter__(self) -> "Growing":
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        self._thread.join(5)


def serving(folder: Path, seconds: float) -> None:
    """CPU of the server by the number of viewers."""
    with Server(folder) as server, Growing(folder, 20_001):
        with Viewers(server.port, 1):
            time.sleep(12)  # the first reading, and the pause after it
        print(f"server: {server.seconds():.2f} CPU s to start and read the record")
        for count in (0, 1, 20, 1, 20):
            if count == 0:
                time.sleep(31)  # nobody has looked for so long: the reading stops
            with Viewers(server.port, count) as viewers:
                time.sleep(3)
                before, sent, began = server.seconds(), viewers.bytes, time.monotonic()
                time.sleep(seconds)
                took = time.monotonic() - began
                share, size = (server.seconds() - before) / took, (viewers.bytes - sent) / took
            print(f"server: {count:2} viewers {100 * share:6.2f} % of a core, {size / 1000:6.1f} kB/s sent")


def training(folder: Path, seconds: float = 2.0, turns: int = 30) -> None:
    """The time of a step while the board and 20 viewers stand still (SIGSTOP) and while they run, in short turns."""
    matrix = np.random.default_rng(0).random((500, 500))
    writer = RecordWriter(folder, True, lambda line: None)
    step, walls, cpus = 30_001, {"without": [], "with": []}, {"without": [], "with": []}

    def stretch(kind: str) -> None:
        nonlocal step
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            wall, cpu = time.perf_counter(), time.thread_time()
            for _ in range(2):
                np.tanh(matrix @ matrix)
            writer.append("steps.jsonl", row(step, time=time.time()))
            walls[kind].append(time.perf_counter() - wall)
            cpus[kind].append(time.thread_time() - cpu)
            step += 1

    with Server(folder) as server:
        watched = subprocess.Popen([sys.executable, __file__, "--viewers", str(server.port)])
        others = [server.cpu, psutil.Process(watched.pid)]
        try:
            time.sleep(20)
            for _ in range(turns):
                for other in others:
                    other.suspend()
                stretch("without")
                for other in others:
                    other.resume()
                stretch("with")
        finally:
            watched.kill()
            watched.wait(10)
    for name, times in (("wall", walls), ("CPU", cpus)):
        one, other = median(times["without"]) * 1000, median(times["with"]) * 1000
        steps = f"{len(times['without'])} and {len(times['with'])} steps"
        print(f"training: a step's {name} {one:.2f} ms without, {other:.2f} ms with the board and 20 viewers "
              f"({100 * (other / one - 1):+.1f} %; {steps})")  # fmt: skip


def page(folder: Path) -> None:
    """From the navigation to painted curves."""
    from board_server import until
    from chromium import Browser, find

    if find() is None:
        print("page: no browser is installed")
        return
    drawn = "document.body?.dataset.painted && document.querySelector('#chart-loss .legend li')"
    took: dict[str, list[float]] = {"just started": [], "known": []}
    own: list[float] = []
    with Browser() as browser:
        browser.call("Performance.enable", timeDomain="threadTicks")
        for _ in range(2):
            with Server(folder) as server:
                for kind in took:
                    begun = time.perf_counter()
                    browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
                    until(browser, drawn, 60)
                    took[kind].append(time.perf_counter() - begun)
                    metrics = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
                    own.append(metrics["TaskDuration"])
                    browser.call("Page.navigate", url="about:blank")
    for kind, seconds in took.items():
        print(f"page: {min(seconds):.2f} s to painted curves, board {kind}")
    print(f"page: {min(own):.2f} CPU s of the page's own thread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--viewers", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("server", "training", "page"))
    words = parser.parse_args()
    if words.viewers:
        with Viewers(words.viewers, 20):
            time.sleep(600)
        return
    with tempfile.TemporaryDirectory() as folder:
        run = long_record(Path(folder) / "run")
        size = sum(file.stat().st_size for file in (run / "obs").iterdir()) / 1e6
        print(f"{size:.0f} MB of record; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for name, measure in (("page", page), ("server", lambda at: serving(at, words.seconds)),
                              ("training", training)):  # fmt: skip
            if words.only in (None, name):
                measure(run)


if __name__ == "__main__":
    main()
