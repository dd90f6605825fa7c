"""A killed LoRA run of 12 steps with checkpoint-4 and checkpoint-8, and the plan of its resume."""

import shutil

import pytest
import yaml
from tiny import tiny_config

from llamafactory_obs.preflight.run_config import read_run_config
from llamafactory_obs.resume.plan import make_plan

LORA = {"finetuning_type": "lora", "lora_rank": 4, "lora_target": "all"}
RUN = {**LORA, "max_steps": 12, "save_steps": 4, "lr_scheduler_type": "cosine", "warmup_steps": 2}
RUN |= {"overwrite_output_dir": None, "callbacks": ["grad_norm_spike"]}
#: the last step that was made
KILLED = 9


@pytest.fixture(scope="module")
def killed(llamafactory, model, data, tmp_path_factory):
    """The run, ended after step 9 without its end."""
    from llamafactory.train.tuner import run_exp
    from transformers import TrainerCallback

    class Killed(BaseException):
        pass

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == KILLED + 1:
                raise Killed

    out = tmp_path_factory.mktemp("killed") / "out"
    with pytest.raises(Killed):
        run_exp(tiny_config(model, data, out, **RUN), callbacks=[Kill()])
    return out


class Folder:
    """A copy of the run that may be damaged."""

    def __init__(self, out, model, data, place):
        self.out, self.model, self.data, self.place = out, model, data, place

    @property
    def newest(self):
        return self.out / "checkpoint-8"

    def config(self, **keys):
        """`run.yaml` with other keys; None removes one."""
        file = self.place / "run.yaml"
        out = keys.pop("output_dir", self.out)
        file.write_text(yaml.safe_dump(tiny_config(self.model, self.data, out, **RUN | keys)))
        return file

    def plan(self, asked=None, words=(), **keys):
        return make_plan(read_run_config(self.config(**keys), words), asked)


@pytest.fixture
def folder(killed, model, data, tmp_path):
    shutil.copytree(killed, tmp_path / "out")
    return Folder(tmp_path / "out", model, data, tmp_path)


def names(points):
    return [point.name for point in points]


def point(points, name):
    """The one point of this name."""
    (found,) = [one for one in points if one.name == name]
    return found


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
