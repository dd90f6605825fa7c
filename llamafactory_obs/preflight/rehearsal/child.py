"""A training in a process of its own, with a log, a line per step, and an end in every case.

In this process a training would leave the state of accelerate, the CUDA context and LlamaFactory's global names behind.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from ...record.schema import FOLDER, STEPS, decode

_POLL_S = 0.2
#: seconds that torchrun may take to end its workers before all are killed
_GRACE_S = 20.0
#: a line that says what went wrong: `ValueError: ...`, `torch.OutOfMemoryError: ...`
_ERROR = re.compile(r"^(?:\[rank\d+\]:\s*)?(?:[\w.]*(?:Error|Exception|Interrupt|Iteration|Exit)\b|llamafactory-obs: )")
_NOISE = re.compile(r"^\s*$|^\[?(?:INFO|WARNING|W\d{4}|I\d{4})|^\s*(?:File \"|warnings\.warn)|it/s\]|^[-=*|]+$")


@dataclass(frozen=True)
class Ended:
    """How a training ended.

    Attributes:
        exit_code: of the process; negative for a signal.
        seconds: from start to end, with loading.
        last_words: of its log where it failed: the error first.
    """

    exit_code: int
    seconds: float
    last_words: list[str]


def processes() -> tuple[int, list[str]]:
    """How many processes `llamafactory-cli train` would start here, and a note where it would be more machines."""
    from llamafactory.extras.misc import get_device_count, is_env_enabled

    devices = get_device_count()
    notes = []
    if is_env_enabled("USE_RAY") or is_env_enabled("USE_KT"):
        return 1, ["USE_RAY, USE_KT: rows are laid out for one process; more of them share them in another order"]
    if not (is_env_enabled("FORCE_TORCHRUN") or is_env_enabled("USE_MCA") or devices > 1):
        return 1, notes
    if os.environ.get("NNODES", "1") != "1":
        notes.append("NNODES: only this machine takes part; what a training over several needs is not covered")
    given = os.environ.get("NPROC_PER_NODE", "")
    return max(1, int(given) if given.isdigit() else devices), notes


def environment(scratch: Path, given: dict, derived: dict) -> dict[str, str]:
    """The variables of the child: one machine; its temporary files and data caches go to a folder that goes away.

    Args:
        scratch: that folder.
        given: the keys of the real config.
        derived: the keys of the child's; `cache_dir`, where data sets would be cached too, is gone from it.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "HF_DATASETS_CACHE": str(scratch / "datasets")}
    env["TMPDIR"] = str(scratch)  # a training that is ended by a signal leaves what its trackers made at import
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    if given.get("cache_dir") and not derived.get("cache_dir"):
        env["HF_HUB_CACHE"] = str(given["cache_dir"])
    if env.get("NNODES", "1") != "1":
        env["NNODES"], env["NODE_RANK"] = "1", "0"
        for name in ("MASTER_ADDR", "MASTER_PORT", "RDZV_ID", "MIN_NNODES", "MAX_NNODES"):
            env.pop(name, None)
    return env


def train(
    config: Path,
    output_dir: Path,
    log: Path,
    env: dict[str, str],
    on_step: Callable[[dict], None],
    kill_when: Callable[[], bool] = lambda: False,
) -> Ended:
    """Train a derived config with `llamafactory-obs train` and wait for it.

    Args:
        config: its file; where its path holds a blank, a copy in the child's TMPDIR is trained, if that holds none.
        output_dir: the one in it; `on_step` is called with each row of its record's `steps.jsonl`.
        log: stdout and stderr of the training.
        env: see `environment`.
        kill_when: asked all the time; at the first true all its processes get SIGKILL, as on a machine that is gone.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C, or within `signals_raise` SIGTERM and SIGHUP; the training's processes
            are ended before.
    """
    if " " in str(config) and " " not in env["TMPDIR"]:  # LlamaFactory splits its torchrun command at blanks
        config = Path(shutil.copy(config, Path(env["TMPDIR"]) / config.name))
    command = [sys.executable, "-m", "llamafactory_obs.cli", "train", str(config)]
    started = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        follow = _Follower(output_dir / FOLDER / STEPS, on_step)
        try:
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL_S)
                follow.read()
                if kill_when():
                    _kill(child)
        except BaseException:
            _end(child)
            raise
    seconds = time.monotonic() - started
    return Ended(child.returncode, seconds, last_words(log) if child.returncode else [])


def last_words(log: Path, count: int = 8) -> list[str]:
    """The lines of a log that say why a training failed: errors, or else its end."""
    text = log.read_bytes()[-200_000:].decode("utf-8", "replace")
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    errors = [line[:500] for line in lines if _ERROR.match(line)]
    rest = [line[:500] for line in lines if not _NOISE.search(line)]
    return list(dict.fromkeys(errors[-3:] or rest[-count:]))


class _Follower:
    """Reads the rows that are added to a file; a row whose end is not there yet waits."""

    def __init__(self, path: Path, on_row: Callable[[dict], None]):
        self._path, self._on_row, self._at = path, on_row, 0

    def read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return
        self._at += len(whole) + len(newline)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                self._on_row(decode(line))


def _kill(child: subprocess.Popen) -> None:
    """SIGKILL for the training and all that it started: nobody gets to save anything."""
    try:
        family = psutil.Process(child.pid).children(recursive=True)  # torchrun's workers lead groups of their own
    except psutil.Error:
        family = []
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(family, timeout=_GRACE_S)
    child.wait()


def _end(child: subprocess.Popen) -> None:
    """End the training and all that it started; torchrun puts its workers into sessions of their own."""
    try:
        alive = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    except psutil.Error:
        alive = []
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        _, alive = psutil.wait_procs(alive, timeout=_GRACE_S)
    finally:  # also after a second Ctrl-C
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=5)
        child.wait()
