"""What the tests of `system` share: what it needs of a recorder, and its reader of the host."""

import torch

from llamafactory_obs.callbacks.cgroup import ControlGroup
from llamafactory_obs.callbacks.host_load import HostLoad
from llamafactory_obs.callbacks.pipeline import Row


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
