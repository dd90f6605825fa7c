"""Prompts as a server renders them: by the chat template that lies in the checkpoint."""

import hashlib

from ...errors import ConfigError
from ...suite.model import Probe
from . import Rendering
from .tokenizer import keep_all, special_tokens

#: what a chat template contains -> the tool format that it teaches, the rarest mark first
_MARKS = (
    ("<|tool_call_start|>", "lfm2"),
    ("<minimax:tool_call>", "minimax2"),
    ("<tool_calls>", "minimax1"),
    ("<seed:tool_call>", "seed_oss"),
    ("<|tool_call>", "gemma4"),
    ("<arg_key>", "glm4_moe"),
    ("<function=", "qwen3_5"),
    ("<tool_call>", "qwen"),
    ("[AVAILABLE_TOOLS]", "mistral"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|observation|>", "glm4"),
    ("<|start_header_id|>", "llama3"),
)


def guess_format(chat_template: str) -> str:
    """The tool format a chat template teaches, by its marks; "default" where none is known."""
    return next((name for mark, name in _MARKS if mark in chat_template), "default")


class ServedTemplate:
    """The chat template of a tokenizer; see `Renderer`.

    Args:
        tokenizer: as loaded from the checkpoint.
        stop_ids: further token ids that end an answer, those of its generation config.
        why: for people.
        tool_format: overrides the guess.
        enable_thinking: handed to the template where the run set it.

    Attributes:
        chat_template: its text.

    Raises:
        ConfigError: the tokenizer has no chat template.
    """

    def __init__(
        self,
        tokenizer,
        stop_ids: list[int],
        why: str,
        tool_format: str | None = None,
        enable_thinking: bool | None = None,
    ):
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("tool_use") or template.get("default")
        if not template:
            raise ConfigError(
                "the checkpoint has no chat template and the run's template is not known here: "
                "name LlamaFactory's with --template NAME (needs llamafactory installed)"
            )
        digest = hashlib.sha256(template.encode()).hexdigest()[:12]
        self._tokenizer, self._options, self.chat_template = tokenizer, {}, template
        if enable_thinking is not None:
            self._options["enable_thinking"] = enable_thinking
        self.rendering = Rendering("chat_template", digest, tool_format or guess_format(template), why)
        ends = [tokenizer.eos_token_id, *stop_ids]
        self.stop_ids = sorted({token for token in ends if token is not None})
        self.special_tokens = special_tokens(tokenizer)

    def encode(self, messages: list[dict], probe: Probe) -> list[int]:
        """See `Renderer.encode`. Raises what the template raises: it may not know tools or roles."""
        turns = [{"role": "system", "content": probe.system}] if probe.system else []
        for message in messages:
            turn = {"role": message["role"], "content": message.get("content") or ""}
            if message.get("tool_calls"):
                turn["tool_calls"] = [{"type": "function", "function": call} for call in message["tool_calls"]]
            turns.append(turn)
        tools = [{"type": "function", "function": tool.as_dict()} for tool in probe.tools] or None
        return self._tokenizer.apply_chat_template(
            turns, tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False, **self._options
        )

    def text(self, ids: list[int]) -> str:
        """See `Renderer.text`."""
        return keep_all(self._tokenizer, ids)
