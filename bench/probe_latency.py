"""How long from a complete checkpoint to the first token of its output?

    python bench/probe_latency.py RUN/output_dir                                      # the backend `local`
    python bench/probe_latency.py RUN/output_dir --endpoint http://localhost:8000/v1  # and `vllm`

The output_dir is that of a finished LoRA run with several checkpoints and our record (`callbacks: [grad_norm_spike]` is
enough). For each backend a watcher as in `llamafactory-obs probe --watch` watches a new folder, into which the
checkpoints are saved one after the other, in the order in which transformers writes them: `trainer_state.json` last.
The clock starts when that file is written. Columns, in seconds:

    taken      the watcher has noticed the checkpoint, proven it complete and made its private copy
    prepared   the tokenizer and the template are read, trained and served prompts compared
    loaded     the adapter is on the model (`local`), the server has loaded it (`vllm`)
    prompt     the prompt is rendered
    token      the first token is there
    total      all of it
    floor      the same once more on the adapter that is loaded now: to the first token for a prompt of this length
               (its first token is another one, so that no prefix cache helps); what no prober could do without

The first checkpoint is shown apart: the model is loaded for it, and LlamaFactory imported. Compare `total - floor` with
what is wanted, on a machine that does nothing else. The tables are the result, nothing is passed or failed.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from llamafactory_obs.probe.backends import Backend
from llamafactory_obs.probe.scan import find_checkpoints
from llamafactory_obs.probe.session import Options, Session
from llamafactory_obs.probe.show import View
from llamafactory_obs.probe.watcher import Watcher
from llamafactory_obs.record.schema import FOLDER, RUN
from llamafactory_obs.suite import load_suite, shipped_suite

STAGES = ("taken", "prepared", "loaded", "prompt", "token")
STATE = "trainer_state.json"
PATIENCE_S = 300.0


class Clock:
    """Passed on between the session and its backend: when each stage of the checkpoint at hand was over."""

    def __init__(self):
        self.saved, self.over, self.floor, self.done = 0.0, {}, 0.0, threading.Event()

    def start(self) -> None:
        self.over, self.floor = {}, 0.0
        self.done.clear()
        self.saved = time.perf_counter()

    def stamp(self, stage: str) -> None:
        self.over.setdefault(stage, time.perf_counter())

    def row(self) -> dict[str, float]:
        """Seconds of each stage, their sum and the floor."""
        before, row = self.saved, {}
        for stage in STAGES:
            row[stage], before = self.over[stage] - before, self.over[stage]
        return {**row, "total": before - self.saved, "floor": self.floor}


class TimedModel:
    """A model that stamps; its first answer is followed by a measurement of the floor."""

    def __init__(self, model, clock: Clock):
        self._model, self._clock = model, clock

    @property
    def notes(self) -> list[str]:
        return self._model.notes

    def generate(self, prompt, stop_ids, max_new_tokens, progress):
        self._clock.stamp("prompt")

        def told(count: int) -> None:
            if count:
                self._clock.stamp("token")
            progress(count)

        made = self._model.generate(prompt, stop_ids, max_new_tokens, told)
        if not self._clock.floor:
            other = [prompt[0] + random.randrange(100, 10000), *prompt[1:]]
            self._clock.floor = self._model.generate(other, stop_ids, 1, lambda count: None).first_token_s
        return made


class TimedBackend:
    """A backend that stamps."""

    def __init__(self, backend: Backend, clock: Clock):
        self._backend, self._clock = backend, clock
        self.name, self.where, self.settings = backend.name, backend.where, backend.settings

    @contextlib.contextmanager
    def open(self, taken):
        self._clock.stamp("prepared")
        with self._backend.open(taken) as model:
            self._clock.stamp("loaded")
            yield TimedModel(model, self._clock)

    def close(self) -> None:
        self._backend.close()


class TimedSession(Session):
    """A session that stamps."""

    def __init__(self, clock: Clock, *words):
        super().__init__(*words)
        self._clock, self._timed = clock, None

    def recorded(self, taken) -> bool:
        self._clock.stamp("taken")  # the first thing that the watcher asks about a copy
        return super().recorded(taken)

    def _choose(self, taken) -> Backend:
        self._timed = self._timed or TimedBackend(super()._choose(taken), self._clock)
        return self._timed

    def _conclude(self, *words) -> None:
        super()._conclude(*words)
        self._clock.done.set()


def save(source: Path, target: Path) -> None:
    """As transformers saves: everything, a while for the optimizer's state, and then the state."""
    target.mkdir()
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != STATE:
            shutil.copy(file, target)
    time.sleep(random.uniform(0.2, 0.7))
    (target / STATE).write_bytes((source / STATE).read_bytes())


def measure(run: Path, out: Path, options: Options, suite, count: int) -> tuple[str, list[tuple[str, dict]]]:
    """The backend in words, and `(checkpoint, row)` of each."""
    (out / FOLDER).mkdir(parents=True)
    shutil.copy(run / FOLDER / RUN, out / FOLDER)
    clock, said, rows = Clock(), io.StringIO(), []
    session = TimedSession(clock, out, suite, options, View(said), None)
    training = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # ends the watch
    watcher = Watcher(
        out,
        suite.sha256,
        session.probe,
        say=lambda line: print(line, file=said),
        recorded=session.recorded,
        parent=training.pid,
    )
    watching = threading.Thread(target=watcher.watch, daemon=True)
    watching.start()
    try:
        time.sleep(1.0)
        for found in find_checkpoints(run)[:count]:
            save(found.folder, out / found.name)
            clock.start()
            if not clock.done.wait(PATIENCE_S):
                sys.exit(f"{found.name} was not probed:\n{said.getvalue()}")
            rows.append((found.name, clock.row()))
            time.sleep(random.uniform(1.0, 3.0))  # anywhere between two looks
        where = session._timed.where
    finally:
        training.communicate(b"\n")
        watching.join(30)
        session.close()
    return where, rows


def table(where: str, rows: list[tuple[str, dict]]) -> None:
    names = [*STAGES, "total", "floor"]
    print(f"\n{where}\n{'checkpoint':<18}" + "".join(f"{name:>10}" for name in names))

    def line(head: str, row: dict) -> None:
        print(f"{head:<18}" + "".join(f"{row[name]:>10.3f}" for name in names))

    (first, first_row), *others = rows
    line(f"{first} *", first_row)
    for name, row in others:
        line(name, row)
    median = {name: statistics.median(row[name] for _, row in others) for name in names}
    line("median", median)
    apart = statistics.median(row["total"] - row["floor"] for _, row in others)
    ratio = statistics.median(row["total"] / row["floor"] for _, row in others)
    print(f"median of total - floor: {apart:.3f} s, of total / floor: {ratio:.1f}; * not in the medians")


def main() -> None:
    os.environ.setdefault("LLAMAFACTORY_VERBOSITY", "WARN")
    parser = argparse.ArgumentParser(description="Seconds from a complete checkpoint to the first token.")
    parser.add_argument("run", type=Path, help="output_dir of a finished LoRA run")
    parser.add_argument("--endpoint", help="a vLLM server that serves the same base model")
    parser.add_argument("--checkpoints", type=int, default=6, help="how many, the first included (default %(default)s)")
    parser.add_argument("--device", default="auto", help="of the backend local")
    args = parser.parse_args()
    there = find_checkpoints(args.run) if args.run.is_dir() else []
    if len(there) < 3 or args.checkpoints < 3:
        parser.error(f"{args.run}: at least 3 checkpoints are wanted, there are {len(there)}")
    suite = load_suite(shipped_suite())
    suite = replace(suite, probes=(replace(suite.probes[0], max_turns=1),), max_new_tokens=2)
    backends = ["local"] + (["vllm"] if args.endpoint else [])
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; probe {suite.probes[0].name!r} of the shipped"
    )
    for backend in backends:
        options = Options(backend=backend, endpoint=args.endpoint, device=args.device, baseline=False)
        with tempfile.TemporaryDirectory(prefix="probe-latency-") as folder:
            table(*measure(args.run, Path(folder) / "out", options, suite, args.checkpoints))


if __name__ == "__main__":
    main()
