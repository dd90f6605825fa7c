"""`ranks`: several processes as one run: what each rank measured, a slow rank, ranks that are out of step."""

from dataclasses import dataclass
from typing import ClassVar

from ..detect import DesyncDetector, StragglerDetector
from ..record.schema import RANKS, Key
from .base import ObsCallback
from .checksum import checksum
from .throughput import PARTS

CHECKSUM = "ranks/weights_checksum"
#: what synchronous training keeps equal on all ranks
_EQUAL = ("train/grad_norm", "train/lr", "train/epoch", CHECKSUM)
#: parts of a step that are a rank's own work
_OWN = tuple(part for part in (*PARTS, "callbacks") if part not in ("communication", "checkpoint", "eval"))


@dataclass(eq=False)
class RankWatch(ObsCallback):
    """Writes `ranks.jsonl`, with each rank's own numbers where ranks differ, and compares the ranks.

    The numbers come with the one exchange that the record makes anyway. Whether weights are equal is asked by a
    checksum: in the first step over all of them, frozen ones too, then over the trainable ones.
    """

    yaml_name: ClassVar[str] = "ranks"
    keys: ClassVar[tuple[Key, ...]] = (
        Key(
            CHECKSUM,
            "1",
            "several processes, every weights_every steps: checksum of the weights' bits, the same on all ranks",
        ),
    )

    share: float = 0.15
    """A rank is a straggler when it costs the others this share of a step ..."""

    window: int = 20
    """... in most of so many steps."""

    weights_every: int = 50
    """Steps between two checksums of the weights; 0 = never. One pass over the trainable weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")
        if self.weights_every < 0:
            raise ValueError(f"weights_every must not be negative, got {self.weights_every}")

    def begin(self) -> None:
        hosts = self.run.hosts
        several = len(hosts) > 1
        self._first = True
        self._weights = self.weights_every > 0 and several
        if not several:
            self.run.event("note", self.yaml_name, "one process", "one process: there are no ranks to compare")
            return
        self._straggler = StragglerDetector(hosts, share=self.share, window=self.window)
        self._desync = DesyncDetector(exact=frozenset({CHECKSUM}))
        self._said_untimed = False
        if self._weights and self._sharded():
            self._weights = False
            text = "weights are sharded: every rank holds another part, so they are not compared"
            self.run.event("note", self.yaml_name, "sharded weights", text)

    def _sharded(self) -> bool:
        trainer = self.run.trainer
        parameters = list(trainer.model.parameters())
        return bool(trainer.is_fsdp_enabled) or any(
            hasattr(p, "full_tensor") or hasattr(p, "ds_id") for p in parameters
        )

    def updated(self) -> None:
        if self._weights and (self._first or self.run.step % self.weights_every == 0):
            parameters = [p for p in self.run.trainer.model.parameters() if self._first or p.requires_grad]
            self._first = False
            self.run.defer([checksum(parameters)], _take_checksum)

    def row(self, row) -> None:
        if not row.per_rank:
            return
        differing = {key: numbers for key, numbers in row.per_rank.items() if len(set(numbers)) > 1}
        self.run.append(RANKS, {"step": row.step, "time": row.time, "values": differing})
        equal = {key: row.per_rank[key] for key in _EQUAL if key in row.per_rank}
        for finding in self._desync.update(row.step, equal):
            self.run.alert(self.yaml_name, finding)
        self._judge_speed(row)

    def _judge_speed(self, row) -> None:
        parts = {part: row.per_rank.get(f"time/{part}_s") for part in _OWN}
        if not all(numbers and None not in numbers for numbers in parts.values()):
            if not self._said_untimed:
                self._said_untimed = True
                text = "a slow rank cannot be told: name `throughput` as well, it measures each rank's own time"
                self.run.event("unavailable", self.yaml_name, "no step times", text, level="warn", step=row.step)
            return
        if not row.values.get("time/unusual"):
            finding = self._straggler.update(row.step, parts)
            if finding is not None:
                self.run.alert(self.yaml_name, finding)


def _take_checksum(row, number: int) -> None:
    row.values[CHECKSUM] = float(number)
