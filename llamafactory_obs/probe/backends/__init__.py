"""What generates: a running vLLM server (`vllm.py`), or transformers in this process (`local.py`).

A backend opens one checkpoint at a time; what it opens generates greedily from token ids.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..copies import Taken


@dataclass(frozen=True)
class Generation:
    """One answer.

    Attributes:
        ids: the generated token ids; the end token is the last one where the model made one.
        finish: "stop": ended by an end token; "length": cut at the limit.
        seconds: wall time.
        first_token_s: wall time to the first token.
    """

    ids: list[int]
    finish: Literal["stop", "length"]
    seconds: float
    first_token_s: float


class Model(Protocol):
    """An opened checkpoint.

    Attributes:
        notes: what is worth knowing about how it was opened, one line each.
    """

    notes: list[str]

    def generate(
        self, prompt: list[int], stop_ids: list[int], max_new_tokens: int, progress: Callable[[int], None]
    ) -> Generation:
        """Greedy, alone in its batch; `progress` is told the number of tokens so far."""
        ...


class Backend(Protocol):
    """Opens checkpoints.

    Attributes:
        name: "vllm" | "local".
        where: what it is, for people.
        settings: all sampling settings that are sent, for the record.
    """

    name: str
    where: str
    settings: dict

    def open(self, taken: Taken | None) -> AbstractContextManager[Model]:
        """Open a checkpoint's private copy, or the base model (None).

        Raises:
            Refused: this backend cannot load it.
            Unavailable: not now; try again later.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


@dataclass
class Refused(Exception):
    """This backend cannot load this checkpoint; `cure` says what would help."""

    why: str
    cure: str = field(default="")

    def __str__(self) -> str:
        return f"{self.why}; {self.cure}" if self.cure else self.why


class Unavailable(Exception):
    """The backend is not there now. That says nothing about the checkpoint."""
