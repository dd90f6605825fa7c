"""Commands a training that runs in this process, from a process of its own, while a step is being made."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from transformers import TrainerCallback

CONTROL = [sys.executable, "-m", "llamafactory_obs.cli", "control"]
QUIET = {"LLAMAFACTORY_OBS_AUTOLOAD": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def control(output_dir: Path, *words: str) -> tuple[int, dict]:
    """Call the verb and return its exit code and its JSON object."""
    done = subprocess.run([*CONTROL, str(output_dir), *words, "--json"], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


class RateOfEachStep(TrainerCallback):
    """Prints, in the end, which rate each update of this rank had."""

    def __init__(self, rank: int):
        self._rank, self._rates = rank, {}

    def on_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self._rates[state.global_step + 1] = optimizer.param_groups[0]["lr"]

    def on_train_end(self, args, state, control, **kwargs):
        print("\n" + json.dumps({"rank": self._rank, "rates": self._rates}), flush=True)


class Commander(TrainerCallback):
    """Starts the verb in the middle of some steps, and holds the step up until its file has come.

    Args:
        words: step -> the words of the call.
        hold: seconds that such a step goes on after the file has come: more than the job takes to see it.
    """

    def __init__(self, output_dir: Path, words: dict[int, list[str]], hold: float = 0.6):
        self.output_dir, self._words, self._hold = output_dir, words, hold
        self._calls: dict[int, subprocess.Popen] = {}

    def on_step_begin(self, args, state, control, **kwargs):
        step = state.global_step + 1
        if step not in self._words:
            return
        inbox = self.output_dir / "obs" / "control" / "inbox"
        before = set(os.listdir(inbox))
        command = [*CONTROL, str(self.output_dir), *self._words[step], "--json"]
        self._calls[step] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **QUIET}
        )
        while self._calls[step].poll() is None and not [n for n in set(os.listdir(inbox)) - before if n[0] != "."]:
            time.sleep(0.02)
        time.sleep(self._hold)

    def on_train_end(self, args, state, control, **kwargs):
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            print("\n" + json.dumps({"replies": self.replies()}), flush=True)

    def replies(self) -> dict[int, tuple[int, dict]]:
        """Step of the call -> exit code and JSON object."""
        found = {}
        for step, call in self._calls.items():
            out, err = call.communicate(timeout=60)
            assert out, err
            found[step] = (call.returncode, json.loads(out))
        return found
