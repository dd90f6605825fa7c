"""One probe's conversation: the model and the simulated tool take turns."""

from collections.abc import Callable

from ..suite.model import Probe, Suite
from ..suite.simulate import answer
from .backends import Model
from .formats import read_calls
from .render import Renderer
from .turns import Turn


def converse(
    model: Model, renderer: Renderer, suite: Suite, probe: Probe, progress: Callable[[int, int], None]
) -> tuple[list[Turn], list[dict]]:
    """Let the model answer until it makes no call, breaks one, or has had its turns.

    Args:
        progress: told the number of the turn (from 1) and of its tokens so far.

    Returns:
        `(turns, timings)`; one timing `{"prompt_tokens", "tokens", "seconds", "first_token_s"}` a turn.
    """
    messages, turns, timings = list(probe.messages), [], []
    tools = {tool.name: tool.parameters for tool in probe.tools}
    while len(turns) < probe.max_turns:
        prompt = renderer.encode(messages, probe)
        number = len(turns) + 1
        made = model.generate(prompt, renderer.stop_ids, suite.max_new_tokens, lambda n, at=number: progress(at, n))
        ended = bool(made.ids) and made.ids[-1] in renderer.stop_ids
        ids = made.ids[:-1] if ended else made.ids
        body = renderer.text(ids)
        read = read_calls(body, renderer.rendering.tool_format, tools)
        broken = any(attempt.error for attempt in read.attempts)
        calls = [] if broken else [attempt.call for attempt in read.attempts]
        replies = tuple(answer(probe, call) for call in calls)
        turns.append(Turn(renderer.text(made.ids), body, made.finish, len(made.ids), read.attempts, read.says, replies))
        timings.append(
            {
                "prompt_tokens": len(prompt),
                "tokens": len(made.ids),
                "seconds": round(made.seconds, 3),
                "first_token_s": round(made.first_token_s, 3),
            }
        )
        if not calls:
            break
        made_calls = [{"name": call.name, "arguments": call.arguments} for call in calls]
        messages.append(_encodable({"role": "assistant", "content": read.says, "tool_calls": made_calls}))
        messages += [_encodable({"role": "tool", "content": reply.text}) for reply in replies]
    return turns, timings


def _encodable(value):
    """Half a surrogate pair, which JSON can spell and no tokenizer takes, becomes a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list) else value
