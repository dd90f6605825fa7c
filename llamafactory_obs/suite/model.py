"""What a suite is made of. `load.py` reads it from YAML; the format is described in docs/suite.md."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """A function the model may call; `parameters` is a JSON Schema (draft 2020-12) of type object."""

    name: str
    description: str
    parameters: dict

    def as_dict(self) -> dict:
        """`{"name", "description", "parameters"}`, as LlamaFactory's datasets and the chat templates want it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True)
class Reply:
    """One rule of the simulated tool: calls of `tool` whose arguments fit `when` are answered with `reply`.

    Attributes:
        tool: the function's name.
        when: argument name -> the values that fit; an empty mapping fits any arguments.
        reply: what the model is shown, as JSON; "{region}" in a text stands for that argument of the call. A mapping
            with the key `error` is an error.
    """

    tool: str
    when: dict[str, list]
    reply: object


@dataclass(frozen=True)
class Call:
    """One well-formed call that the model has made."""

    name: str
    arguments: dict


@dataclass(frozen=True)
class ExpectedCall:
    """A call that must be made. Values are compared by type too: "8" is not 8 (but 8.0 is 8, as in JSON Schema).

    Attributes:
        arguments: name -> the values that are right (one or several).
        optional: names that may be given besides, with any value.
    """

    name: str
    arguments: dict[str, list]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class AfterError:
    """What must follow once the tool has answered an error.

    Attributes:
        retry: argument name -> the values that are right in a later call; None where no call can be right.
        or_ask: asking the user, without a call, is right as well.
        no_repeat: argument name -> values that may not be called again after they were refused.
    """

    retry: dict[str, list] | None = None
    or_ask: bool = False
    no_repeat: dict[str, list] | None = None


@dataclass(frozen=True)
class Expect:
    """All that is given must hold.

    Attributes:
        calls: the calls of the whole conversation, in this order and no others; () means none; None is not checked.
        answer: "non_empty": the last answer has text.
        contains: texts that the last answer must contain.
        after_error: see `AfterError`; None is not checked.
        invented: a regular expression for what only the tool can know: a match in an answer that no reply contained
            (and the user did not say) is invented.
        scorer: a function by dotted path, `package.module.function(probe, turns) -> list[str]`: further error classes.
    """

    calls: tuple[ExpectedCall, ...] | None = None
    answer: str | None = None
    contains: tuple[str, ...] = ()
    after_error: AfterError | None = None
    invented: str | None = None
    scorer: str | None = None


@dataclass(frozen=True)
class Probe:
    """One conversation: what the user says, then the model and the simulated tool take turns.

    Attributes:
        messages: `{"role": "user" | "assistant" | "tool", "content"}`, an assistant's also with `tool_calls`
            (`[{"name", "arguments"}]`); the last one is from the user or a tool.
        tools: what the model may call here; empty for none.
        max_turns: answers of the model at most.
        line: where it stands in its file.
    """

    name: str
    about: str
    messages: tuple[dict, ...]
    system: str
    tools: tuple[Tool, ...]
    tool_replies: tuple[Reply, ...]
    max_turns: int
    expect: Expect
    line: int = 0

    @property
    def prompt(self) -> str:
        """What the user says last."""
        return next((m["content"] for m in reversed(self.messages) if m["role"] == "user"), "")


@dataclass(frozen=True)
class Suite:
    """Probes with one content hash.

    Attributes:
        max_new_tokens: tokens of one answer at most.
        sha256: of all that can change an output or a verdict. Comments, order of keys and `about` do not count. Outputs
            of two suites are comparable only where it is equal.
    """

    name: str
    path: Path
    probes: tuple[Probe, ...] = field(default=())
    max_new_tokens: int = 256
    sha256: str = ""
