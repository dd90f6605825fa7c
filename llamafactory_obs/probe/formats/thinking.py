"""Cutting the thinking out of an answer: it is never judged as a call, nor is it said to the user."""

from collections.abc import Callable

# What LlamaFactory's templates call `thought_words`.
MARKS = (("<think>", "</think>"), ("<seed:think>", "</seed:think>"), ("<|channel>thought\n", "<channel|>"))


def without(body: str, spans: Callable[[str], list[tuple[int, int]]]) -> str:
    """The text without thinking.

    An opening mark without a closing one takes all that follows. A closing mark without an opening one takes all
    before it, for some chat templates put the opening mark at the end of the prompt.

    Args:
        spans: where the well-formed calls of a text stand; a mark in an argument of one is no mark.
    """
    for opening, closing in MARKS:
        if opening not in body and closing not in body:
            continue
        body = _cut(body, opening, closing, spans(body))
    return body


def _cut(body: str, opening: str, closing: str, calls: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    at = 0
    close = _find(body, closing, 0, calls)
    start = _find(body, opening, 0, calls)
    if close >= 0 and (start < 0 or close < start):
        at = close + len(closing)
    while (start := _find(body, opening, at, calls)) >= 0:
        kept.append(body[at:start])
        # A call within thinking is none, so its arguments do not shield a closing mark.
        end = body.find(closing, start + len(opening))
        if end < 0:
            return "".join(kept)
        at = end + len(closing)
    return "".join(kept) + body[at:]


def _find(body: str, mark: str, at: int, calls: list[tuple[int, int]]) -> int:
    while (found := body.find(mark, at)) >= 0:
        inside = next((end for start, end in calls if start < found < end), None)
        if inside is None:
            return found
        at = inside
    return -1
