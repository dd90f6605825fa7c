"""What a person sees of a reply."""

from ..texts import text
from .order import Order, option
from .send import Reply


def render(reply: Reply) -> str:
    """One line for what happened, one for each part of the command."""
    words = Order(**reply.order).words()
    lines = [f"{reply.dir}: {reply.text}" if reply.status != "no_job" else reply.text]
    if not reply.results:
        return lines[0] if reply.status == "no_job" else f"{lines[0]}\n  {words}"
    width = max(len(option(result["what"])) for result in reply.results)
    for result in reply.results:
        refused = text("control.refused") if result["status"] == "refused" else ""
        lines.append(f"  {option(result['what']):{width}}  {refused}{result['text']}")
    if any(result["what"] == "stop" and result["status"] == "done" for result in reply.results):
        lines.append(text("control.final", folder=reply.dir))
    return "\n".join(lines)
