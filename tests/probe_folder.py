"""A run's output folder for the watcher's tests, made by hand, and a fake probe."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from test_probe_complete import adapter, safetensors

from llamafactory_obs.probe.watcher import Watcher

SUITE = "5" * 64


class Probes:
    """A fake probe: notes what it was given, and raises what it is told to raise."""

    def __init__(self):
        self.names: list[str] = []
        self.weights: list[bytes] = []
        self.raises: list[BaseException | None] = []
        self.meanwhile = lambda taken: None

    def __call__(self, taken):
        self.meanwhile(taken)
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error
        self.names.append(taken.name)
        self.weights.append((taken.path / "adapter_model.safetensors").read_bytes())


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def watcher(run, probes, said):
    def make(suite: str = SUITE, **options) -> Watcher:
        return Watcher(run, suite, options.pop("probe", probes), say=said.append, **{"poll_s": 0.02, **options})

    return make


def save(run: Path, step: int, fill: bytes | None = None, **more) -> Path:
    """A complete checkpoint with a content of its own."""
    return adapter(run / f"checkpoint-{step}", step, weights=safetensors(4, fill or bytes([step % 251])), **more)


def record(run: Path, *kinds: str, segment: int = 0, step: int = 0) -> None:
    """Append events; "checkpoint-20" stands for a checkpoint event."""
    (run / "obs").mkdir(parents=True, exist_ok=True)
    with open(run / "obs" / "events.jsonl", "a") as file:
        for kind in kinds:
            name, _, number = kind.partition("-")
            row = {"step": int(number or step), "time": time.time(), "segment": segment, "kind": name, "level": "info"}
            file.write(json.dumps(row) + "\n")


def rows(run: Path) -> list[dict]:
    """The rows of the ledger, in order."""
    file = run / "obs" / "probe" / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(run: Path) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in rows(run)]


def why(run: Path, name: str) -> str:
    return [row.get("why", "") for row in rows(run) if row["name"] == name][-1]


def let_age(folder: Path, seconds: float) -> None:
    """Make a folder and all in it look older."""
    then = time.time() - seconds
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def eventually(condition, timeout: float = 40.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


class Watching:
    """`watch()` in a thread; what it raises is raised by `join`."""

    def __init__(self, watcher: Watcher):
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(watcher,), daemon=True)
        self._thread.start()

    def _run(self, watcher):
        try:
            watcher.watch()
        except BaseException as error:
            self.error = error

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: float = 40.0) -> None:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the watch did not end"
        if self.error:
            raise self.error


# ---- one look ---------------------------------------------------------------------------------------------------
