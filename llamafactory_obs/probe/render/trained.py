"""Prompts exactly as LlamaFactory rendered them in training, by its own template."""

import copy
import importlib.util
import json

from ...errors import ConfigError
from ...plugin.names import did_you_mean
from ...suite.model import Probe
from . import Rendering
from .tokenizer import keep_all, special_tokens

#: how LlamaFactory 0.9.5 joins several tool answers into one observation (its OpenAI data converter)
_BETWEEN_REPLIES = "\n</tool_response>\n<tool_response>\n"


def available() -> bool:
    """Is LlamaFactory installed here?"""
    return importlib.util.find_spec("llamafactory") is not None


def knows(template: str) -> bool:
    """Has the LlamaFactory that is installed here a template of this name?"""
    from llamafactory.data.template import TEMPLATES

    return template in TEMPLATES


class TrainedTemplate:
    """LlamaFactory's template around a tokenizer; see `Renderer`.

    Args:
        tokenizer: changed as LlamaFactory changes it (special tokens of the template are added).
        settings: LlamaFactory's data arguments, at least `template`; see `facts.RENDERING`.
        why: for people.

    Raises:
        ConfigError: an unknown template or tool format.
    """

    def __init__(self, tokenizer, settings: dict, why: str):
        from llamafactory.data.template import TEMPLATES, get_template_and_fix_tokenizer
        from llamafactory.data.tool_utils import TOOLS
        from llamafactory.hparams import DataArguments

        name, tool_format = settings["template"], settings.get("tool_format")
        if name not in TEMPLATES:
            raise ConfigError(f"LlamaFactory has no template {name!r}{did_you_mean(name, TEMPLATES)}")
        if tool_format is not None and tool_format not in TOOLS:
            raise ConfigError(f"LlamaFactory has no tool format {tool_format!r}{did_you_mean(tool_format, TOOLS)}")
        self._tokenizer = tokenizer
        untouched = copy.deepcopy(TEMPLATES[name])
        self._template = get_template_and_fix_tokenizer(tokenizer, DataArguments(**settings))
        TEMPLATES[name] = untouched  # LlamaFactory changes the registered one; the next run's must not inherit that
        used = self._template.format_function.tool_utils  # what is trained; `format_tools` may be a plain text
        found = next(key for key, utils in TOOLS.items() if type(utils) is type(used))
        self.rendering = Rendering("llamafactory", name, found, why)
        self.stop_ids = sorted(self._template.get_stop_token_ids(tokenizer))
        self.special_tokens = special_tokens(tokenizer)

    @property
    def trained_stop(self) -> int | None:
        """The token that ends an answer in the training data; None where it trains none of the stop tokens."""
        pair = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        _, answer = self._template.encode_oneturn(self._tokenizer, pair)
        return next((token for token in answer if token in self.stop_ids), None)

    def encode(self, messages: list[dict], probe: Probe) -> list[int]:
        """See `Renderer.encode`."""
        turns = [*self._turns(messages), {"role": "assistant", "content": ""}]
        tools = json.dumps([tool.as_dict() for tool in probe.tools], ensure_ascii=False) if probe.tools else None
        # As in training (`encode_multiturn`): `encode_oneturn` leaves the empty thoughts of a reasoning template out of
        # the history, where training has them.
        pairs = self._template.encode_multiturn(self._tokenizer, turns, system=probe.system or None, tools=tools)
        return [token for pair in pairs[:-1] for part in pair for token in part] + pairs[-1][0]

    def text(self, ids: list[int]) -> str:
        """See `Renderer.text`."""
        return keep_all(self._tokenizer, ids)

    def _turns(self, messages: list[dict]) -> list[dict]:
        """In LlamaFactory's roles; an answer with calls is its `function` turn."""
        turns: list[dict] = []
        for message in messages:
            if message["role"] == "tool" and turns[-1]["role"] == "observation":
                turns[-1]["content"] += _BETWEEN_REPLIES + message["content"]
            elif message["role"] == "tool":
                turns.append({"role": "observation", "content": message["content"]})
            elif message.get("tool_calls"):
                turns.append({"role": "function", "content": self._function(message)})
            else:
                turns.append({"role": message["role"], "content": message["content"]})
        return turns

    def _function(self, message: dict) -> str:
        """The calls as JSON; what was said beside them stands before, where the template can hold it."""
        calls = message["tool_calls"]
        text = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
        before, (opening, closing) = message.get("content") or "", self._template.tool_call_words
        holds_words = type(self._template).__name__ != "Llama2Template"  # it hands them on to no formatter
        return f"{before}{opening}{text}{closing}" if before and holds_words else text
