"""What the model said: raw answers, the calls read from them and what the simulated tool replied."""

from dataclasses import dataclass
from typing import Literal

from ..suite.model import Call
from ..suite.simulate import ToolReply


@dataclass(frozen=True)
class Attempt:
    """One try at a tool call, as far as it got on the ladder attempted, closed, parses, has a name and arguments.

    Attributes:
        text: the piece of the answer that it is, markup included.
        closed: the closing mark is there (formats without one: the JSON is complete).
        error: the class of what is wrong with its form, None where it is well-formed; see `formats`.
        detail: the same in words, with the place.
        name, arguments: as far as they could be read; `arguments` may be of any JSON type where `error` is set.
    """

    text: str
    closed: bool
    error: str | None = None
    detail: str = ""
    name: str | None = None
    arguments: object = None

    @property
    def call(self) -> Call | None:
        """The call, where it is well-formed."""
        return Call(self.name, self.arguments) if self.error is None else None


@dataclass(frozen=True)
class Turn:
    """One answer of the model and what the tool said to it.

    Attributes:
        raw: the text with its special tokens, the end token included where one came.
        body: the same without the end token.
        finish: "stop": the model ended it; "length": it was cut at `max_new_tokens`.
        tokens: number of generated tokens.
        attempts: the tool calls tried in it, in order.
        says: the text outside of calls and thinking, stripped.
        replies: the simulated tool's replies, one for each well-formed call; () where the conversation ends here.
    """

    raw: str
    body: str
    finish: Literal["stop", "length"]
    tokens: int
    attempts: tuple[Attempt, ...] = ()
    says: str = ""
    replies: tuple[ToolReply, ...] = ()

    @property
    def calls(self) -> list[Call]:
        """The well-formed calls of this answer."""
        return [attempt.call for attempt in self.attempts if attempt.error is None]
