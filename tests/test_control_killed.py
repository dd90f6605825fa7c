"""A real job in a process of its own: commanded, killed with SIGKILL, known to be gone, resumed as it was told."""

import json
import os
import subprocess
import sys
import time

import pytest
from commander import control
from tiny import tiny_config

from llamafactory_obs import load_record

pytestmark = pytest.mark.slow
NAP = """
import time
from transformers import TrainerCallback
class Nap(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        time.sleep(0.3)
"""


def test_a_job_that_is_killed(llamafactory, model, data, tmp_path, train):
    (tmp_path / "nap.py").write_text(NAP)
    folder, log = tmp_path / "run", tmp_path / "log"
    callbacks = ["vram", f"{tmp_path}/nap.py:Nap"]
    config = tiny_config(model, data, folder, callbacks=callbacks, max_steps=400, dataloader_num_workers=1)
    (tmp_path / "run.json").write_text(json.dumps(config))
    with open(log, "w") as stream:
        words = [sys.executable, "-m", "llamafactory_obs.cli", "train", str(tmp_path / "run.json")]
        job = subprocess.Popen(words, stdout=stream, stderr=stream, env={**os.environ, "DISABLE_VERSION_CHECK": "1"})
    try:
        until = time.monotonic() + 180
        steps = folder / "obs" / "steps.jsonl"
        while not steps.exists() and job.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        assert steps.exists(), log.read_text()[-2000:]
        before = len(steps.read_text().splitlines())
        code, reply = control(folder, "--lr-scale", "0.5", "--save")
        assert code == 0 and reply["step"] >= before and reply["job"]["pid"] == job.pid, reply
        assert (folder / f"checkpoint-{reply['step']}").is_dir()
    finally:
        job.kill()
        job.wait()
    code, gone = control(folder, "--stop")
    assert (code, gone["status"]) == (1, "no_job") and "was killed" in gone["text"]
    step = reply["step"]
    train(folder, callbacks=["vram"], max_steps=step + 3, resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
    record = load_record(folder)
    assert record.steps["step"][: step + 3] == list(range(1, step + 4))
    assert record.steps["train/lr"][: step + 3] == pytest.approx([1e-3] * step + [5e-4] * 3)
