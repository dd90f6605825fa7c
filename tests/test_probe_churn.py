"""300 checkpoints, saved faster than anybody saves, rotated, torn and half written, and a watcher that is killed at
random: none is probed twice, none is probed incomplete, none is lost without a word.

Writer and watcher are processes of their own: this file, started with a role. `OBS_CHURN_SEED` chooses another course.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from llamafactory_obs.probe.watcher import Watcher

CHECKPOINTS, EVERY, KEPT = 300, 10, 3
SUITE = "c" * 64
SEED = int(os.environ.get("OBS_CHURN_SEED", "1"))


def weights_of(step: int) -> bytes:
    """A safetensors file of 64 KiB whose numbers tell the step."""
    data = hashlib.sha256(str(step).encode()).digest() * 2048
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return len(header).to_bytes(8, "little") + header + data


def is_cut_off(step: int) -> bool:
    """Every 23rd save is cut off before its state is written, as by a kill; never the last."""
    return (step // EVERY) % 23 == 7


# ---- the training -----------------------------------------------------------------------------------------------


def in_pieces(file: Path, content: bytes, dice: random.Random) -> None:
    """Write in place, with pauses, so that others see torn files."""
    with open(file, "wb", buffering=0) as handle:
        cuts = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            handle.write(content[start:end])
            time.sleep(dice.random() * 0.003)


def save_model(folder: Path, step: int, dice: random.Random) -> None:
    """Weights, config, tokenizer, in their order; the weights by a temporary file or, as before 0.8, in place."""
    folder.mkdir(exist_ok=True)
    weights = folder / "adapter_model.safetensors"
    if dice.random() < 0.5:
        temporary = folder / f".tmp{dice.randrange(10**6):06d}"
        in_pieces(temporary, weights_of(step), dice)
        temporary.rename(weights)
    else:
        weights.write_bytes(b"\0" * len(weights_of(step)))  # sized in advance
        with open(weights, "r+b", buffering=0) as handle:
            for offset in range(0, len(weights_of(step)), 1 << 15):
                handle.write(weights_of(step)[offset : offset + (1 << 15)])
                time.sleep(dice.random() * 0.003)
    in_pieces(folder / "adapter_config.json", b'{"peft_type": "LORA", "r": 8}', dice)
    in_pieces(folder / "tokenizer.json", b'{"version": "1.0"}', dice)


def train(run: Path, seed: int, with_record: bool) -> None:
    """Save, rotate, record: what a training does to its output folder, without the training."""
    dice = random.Random(seed)
    kept: list[Path] = []
    record(run, with_record, "start", 0)
    for step in range(EVERY, EVERY * CHECKPOINTS + 1, EVERY):
        folder = run / f"checkpoint-{step}"
        save_model(folder, step, dice)
        (folder / "optimizer.pt").write_bytes(b"o" * 4096)
        if not is_cut_off(step):
            in_pieces(folder / "trainer_state.json", state(step), dice)
        kept.append(folder)
        while len(kept) > KEPT:
            rotate(kept.pop(0), dice)
        record(run, with_record, "checkpoint", step)
        time.sleep(dice.choice([0.0, 0.0, 0.01, 0.05]))
    record(run, with_record, "end", step)
    save_model(run, step, dice)
    in_pieces(run / "trainer_state.json", state(step), dice)


def state(step: int) -> bytes:
    content = {"global_step": step, "save_steps": EVERY, "max_steps": EVERY * CHECKPOINTS, "log_history": [{}] * 20}
    return json.dumps(content, indent=2).encode()


def rotate(folder: Path, dice: random.Random) -> None:
    """As rmtree does it on a slow disk: file by file, in the folder's order."""
    for file in folder.iterdir():
        file.unlink()
        time.sleep(dice.random() * 0.001)
    shutil.rmtree(folder)


def record(run: Path, wanted: bool, kind: str, step: int) -> None:
    if wanted:
        (run / "obs").mkdir(exist_ok=True)
        row = {"step": step, "time": time.time(), "segment": 0, "kind": kind, "level": "info"}
        with open(run / "obs" / "events.jsonl", "ab", buffering=0) as file:
            file.write(json.dumps(row).encode() + b"\n")


# ---- the watcher ------------------------------------------------------------------------------------------------


def watch(run: Path, seed: int, training: int) -> None:
    """Watch with a fake probe that appends one row with what it saw, and may be killed before and after."""
    dice, results = random.Random(seed), run.parent / "results.jsonl"

    def probe(taken) -> None:
        time.sleep(dice.random() * 0.02)
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(taken.path.iterdir())}
        row = {"name": taken.name, "step": taken.step, "content": taken.content, "files": files}
        with open(results, "ab", buffering=0) as file:
            file.write(json.dumps(row).encode() + b"\n")
        time.sleep(dice.random() * 0.005)

    def recorded(taken) -> bool:
        return any((row["name"], row["content"]) == (taken.name, taken.content) for row in rows_of(results))

    Watcher(run, SUITE, probe, say=print, poll_s=0.02, parent=training, recorded=recorded).watch()


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


# ---- the test ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_record", [True, False], ids=["record", "no record"])
def test_churn(tmp_path, with_record):
    run, dice = tmp_path / "run", random.Random(SEED)
    run.mkdir()
    training = start("train", run, SEED, int(with_record))
    kills = 0
    while training.poll() is None:
        watcher = start("watch", run, dice.randrange(10**6), training.pid)
        try:
            if dice.random() < 0.8:  # else it may be killed while it starts
                wait_until_it_works(run, watcher)
            watcher.wait(timeout=dice.random())
        except subprocess.TimeoutExpired:
            watcher.send_signal(signal.SIGKILL)
            kills += watcher.wait() == -signal.SIGKILL
        time.sleep(dice.choice([0.0, 0.0, 0.2]))
    assert training.returncode == 0 and kills > 3
    last = start("watch", run, 0, training.pid)
    assert last.wait(timeout=30) == 0  # ends by itself

    results = rows_of(tmp_path / "results.jsonl")
    ledger = {(row["name"], row["content"]): row for row in rows_of(run / "obs" / "probe" / "ledger.jsonl")}
    probed = Counter((row["name"], row["content"]) for row in results)
    assert max(probed.values()) == 1
    for row in results:
        assert not is_cut_off(row["step"])
        assert row["files"]["adapter_model.safetensors"] == hashlib.sha256(weights_of(row["step"])).hexdigest()
        assert set(row["files"]) == {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"}
    by_name: dict[str, set[str]] = {}
    for (name, _), row in ledger.items():
        by_name.setdefault(name, set()).add(row["state"])
    names = {row["name"] for row in results}
    lost = [s for s in range(EVERY, EVERY * CHECKPOINTS + 1, EVERY) if f"checkpoint-{s}" not in names]
    assert all(by_name[f"checkpoint-{step}"] & {"missed", "abandoned"} for step in lost), (lost, by_name)
    assert not [name for name in names if by_name[name] != {"done"}]
    assert by_name[f"checkpoint-{EVERY * CHECKPOINTS}"] == {"done"} and by_name["final"] == {"done"}
    assert "final" not in names  # the same content as the last checkpoint
    assert len(names) > CHECKPOINTS // 20
    assert not any((run / "obs" / "probe" / "copies" / SUITE[:8]).iterdir())
    print(f"{len(names)} probed, {len(lost)} missed or abandoned, {kills} kills")


def wait_until_it_works(run: Path, watcher: subprocess.Popen) -> None:
    pid = run / "obs" / "probe" / "pid"
    while watcher.poll() is None:
        with contextlib.suppress(OSError):
            if pid.read_text().strip() == str(watcher.pid):
                return
        time.sleep(0.01)


def start(role: str, run: Path, *more) -> subprocess.Popen:
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, role, str(run), *map(str, more)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    role, folder, first, second = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    train(folder, first, bool(second)) if role == "train" else watch(folder, first, second)
