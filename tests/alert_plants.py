"""A callback that raises what it is told to, for the tests of alerts; named in a config by its path."""

from dataclasses import dataclass
from typing import ClassVar

from llamafactory_obs.callbacks.base import ObsCallback
from llamafactory_obs.detect import Finding


@dataclass(eq=False)
class Planted(ObsCallback):
    """`plan` is `title:level:step`, several with commas; `rank`: that rank alone finds it, or fails in `crash_at`."""

    yaml_name: ClassVar[str] = "planted"

    plan: str = "planted alert:error:3"
    rank: int | None = None
    crash_at: int = 0

    def begin(self) -> None:
        if self.crash_at and self._is_mine():
            self.run.trainer.model.register_forward_pre_hook(self._crash)

    def _crash(self, *args) -> None:
        if self.run.step == self.crash_at:
            raise RuntimeError("planted crash")

    def _is_mine(self) -> bool:
        return self.rank in (None, self.run.trainer.args.process_index)

    def row(self, row) -> None:
        if not self._is_mine():
            return
        for item in self.plan.split(","):
            title, level, step = item.split(":")
            if int(step) == row.step:
                text = f"{title} at step {step}: 请降低学习率 (lower the learning rate)"
                self.run.alert(self.yaml_name, Finding(title, level, row.step, text, {"value": 1.5}, "keep"))
