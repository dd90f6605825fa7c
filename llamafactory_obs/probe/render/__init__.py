"""Rendering a conversation to token ids: as it was trained (LlamaFactory's template) or as it is served.

Both are `Renderer`s over the checkpoint's own tokenizer.
"""

from dataclasses import dataclass
from typing import Protocol

from ...suite.model import Probe


@dataclass(frozen=True)
class Rendering:
    """How prompts were rendered; part of what makes two outputs comparable.

    Attributes:
        by: "llamafactory" | "chat_template".
        name: the template's name, or the first 12 digits of the chat template's SHA-256.
        tool_format: one of `formats.FORMATS`.
        why: why this way, for people.
    """

    by: str
    name: str
    tool_format: str
    why: str

    @property
    def key(self) -> str:
        """`llamafactory:qwen3_nothink`; the same for renderings of the same kind."""
        return f"{self.by}:{self.name}"


class Renderer(Protocol):
    """Turns conversations into prompts for one tokenizer, and token ids back into text.

    Attributes:
        rendering: what it is.
        stop_ids: token ids that end an answer.
        special_tokens: the tokenizer's special tokens, as text.
    """

    rendering: Rendering
    stop_ids: list[int]
    special_tokens: list[str]

    def encode(self, messages: list[dict], probe: Probe) -> list[int]:
        """The prompt after which the model speaks, as token ids; `messages` as in `Probe.messages`."""
        ...

    def text(self, ids: list[int]) -> str:
        """The text of token ids, special tokens kept."""
        ...
