"""What the tests of `system` share: its recorder, its reader of the host, the callback over fake cards."""

import pytest
import torch

from llamafactory_obs import System
from llamafactory_obs.callbacks import system
from llamafactory_obs.callbacks.cgroup import ControlGroup
from llamafactory_obs.callbacks.context import RunContext
from llamafactory_obs.callbacks.host_load import HostLoad
from llamafactory_obs.callbacks.pipeline import Row
from llamafactory_obs.gpu.nvml import Nvml


class Run:
    """What the callback needs of a recorder."""

    def __init__(self, output_dir, device="cuda:0", step=0, **arguments):
        state = {"max_steps": 1000, "global_step": step, "eval_steps": 50, "save_steps": 100}
        args = {
            "device": torch.device(device),
            "output_dir": str(output_dir),
            "local_process_index": 0,
            "dataloader_num_workers": 0,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "eval_strategy": "no",
            "save_strategy": "steps",
            "save_total_limit": None,
            "resume_from_checkpoint": None,
        }
        trainer = {"state": type("State", (), state), "args": type("Args", (), args | arguments)}
        self.trainer = type("Trainer", (), trainer)
        self.events, self.alerts, self.open_row, self.step, self.replaying = [], [], Row(), 1, False
        self.last, self.callbacks = Row(), []

    def event(self, kind, name, title, text, **more):
        self.events.append((kind, title, text, more))

    def alert(self, name, finding):
        self.alerts.append(finding)

    def put(self, key, value):
        self.open_row.values[key] = value


def host(tmp_path, whole_node=True) -> HostLoad:
    return HostLoad(str(tmp_path / "not" / "there" / "yet"), whole_node, ControlGroup())


@pytest.fixture
def start(monkeypatch, tmp_path):
    """`start(fake, run, **options)`: a callback over a fake card and 8 CPUs; its thread is ended afterwards."""
    begun = []
    monkeypatch.setattr(system, "usable_cpus", lambda group: 8.0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(fake, run=None, **options):
        monkeypatch.setattr(system, "Nvml", lambda: Nvml(fake))
        callback = System(**options)
        callback.run, callback.context = run or Run(tmp_path), RunContext()
        begun.append(callback)
        callback.begin()
        callback._sampler._over.set()  # the test itself says when a reading is made
        callback._sampler._thread.join()
        return callback

    yield make
    for callback in begun:
        callback.off()


def one_step(callback, step, seconds=1.0, **values):
    run = callback.run
    run.step, run.open_row = step, Row(step)
    callback._sampler._read()
    callback.step()
    run.open_row.values |= values
    run.open_row.time = 1000.0 + seconds * step
    run.last = run.open_row
    callback.row(run.open_row)
    return run.open_row.values


def names(callback):
    return [finding.name for finding in callback.run.alerts]
