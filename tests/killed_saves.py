"""Kills a real training with SIGKILL while it saves and deletes, again and again, and looks at what is left.

    python tests/killed_saves.py FOLDER KILLS SEED

Each training is a forked process that saves and evaluates at every step and keeps the best two; it goes on from the
newest good checkpoint, as a person would. One JSON line for each kill: what lay there, and which one was good. A last
training of two steps is left alone: what lies there after it is the last line.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: a training that has not saved within so many seconds is killed all the same
PATIENCE_S = 120.0


def good_ones(out: Path) -> list[int]:
    """Steps of the checkpoints that resume, by the same look that the verb takes."""
    from llamafactory_obs.checkpoint.examine import Depth
    from llamafactory_obs.checkpoint.folder import examine_folder
    from llamafactory_obs.errors import ConfigError

    try:
        report = examine_folder(out, depth=Depth(values=True))
    except ConfigError:
        return []
    return [one.step for one in report.checkpoints if one.good or (one.moving and one.verdict.resumes)]


def kill_one(config: dict, moment: random.Random) -> None:
    """Start a training, wait until it saves, and kill it a moment later."""
    out = Path(config["output_dir"])
    before, pid = listed(out), start(config)
    deadline, saves, alive = time.monotonic() + PATIENCE_S, moment.randint(1, 8), True
    while alive and saves and time.monotonic() < deadline:
        now = listed(out)
        saves -= bool(now - before)
        before = now
        time.sleep(0.002)
        alive = os.waitpid(pid, os.WNOHANG) == (0, 0)
    if alive:
        time.sleep(moment.uniform(0.0, 0.4))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def start(config: dict) -> int:
    """Train in a forked process; what it says goes to a file `log`. Returns its pid."""
    out = Path(config["output_dir"])
    pid = os.fork()
    if pid == 0:
        log = os.open(out.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            from llamafactory.train.tuner import run_exp
            from tqdm import tqdm

            tqdm.set_lock(threading.RLock())  # its own is shared by all forks: one that was killed may hold it for ever

            run_exp(config)
        finally:
            os._exit(1)
    return pid


def listed(out: Path) -> set[str]:
    """Names of the checkpoints, and of what is being deleted."""
    return {name for name in os.listdir(out) if "checkpoint-" in name} if out.is_dir() else set()


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill so often; see the module's text."""
    from tiny import tiny_config, tiny_data, tiny_model

    from llamafactory_obs.plugin import autoload

    autoload.install()
    model, data, out = tiny_model(folder / "model"), tiny_data(folder / "data"), folder / "out"
    import llamafactory.train.tuner  # noqa: F401 - once, for all forked trainings

    moment = random.Random(seed)
    every = {"save_steps": 1, "eval_steps": 1, "eval_strategy": "steps", "val_size": 0.1, "max_steps": 100_000}
    good: list[int] = []
    for kill in range(kills):
        resumed = {"resume_from_checkpoint": str(out / f"checkpoint-{good[-1]}")} if good else {}
        guard = [{"checkpoint_guard": {"top_k": {"k": 2}, "read_back": moment.random() < 0.5}}]
        kill_one(tiny_config(model, data, out, callbacks=guard, finetuning_type="lora", **every, **resumed), moment)
        left, good_before = sorted(listed(out)), good
        good = good_ones(out)
        print(json.dumps({"kill": kill, "left": left, "good": good, "before": good_before}), flush=True)
    every |= {"max_steps": good[-1] + 2, "resume_from_checkpoint": str(out / f"checkpoint-{good[-1]}")}
    guard = [{"checkpoint_guard": {"top_k": {"k": 2}}}]
    os.waitpid(start(tiny_config(model, data, out, callbacks=guard, finetuning_type="lora", **every)), 0)
    print(json.dumps({"end": sorted(listed(out)), "good": good_ones(out)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
