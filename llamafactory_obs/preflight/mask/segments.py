"""Which tokens of one conversation are whose, and which of them should be in the loss. Plain lists, no LlamaFactory."""

from dataclasses import dataclass
from typing import NamedTuple

#: labels that the loss leaves out
IGNORE = -100

#: whose tokens; `end` are the tokens that end an answer, `other` what no turn accounts for (media tokens in front)
ROLES = ("system", "user", "tool", "answer", "call", "end", "other")

#: the figures of one conversation, see `figures`; then per role its tokens, and of these those in the loss
_FIELDS = (
    "dropped length whole supervised due missing stray altered outside learnable spans "
    "turns turns_lost taught empty ends_due ends_in answers answers_cut calls calls_cut beheaded prompts_cut"
)
FIELDS = tuple(_FIELDS.split())
COLUMNS = (*FIELDS, *ROLES, *(f"{role}_in" for role in ROLES), "checksum")
DROPPED = [1] + [0] * (len(COLUMNS) - 1)

_ENDS_LIE_WITHIN = 4  # an end token stands this near the end of an encoded answer: `<|im_end|>\n` has one behind it


class NotUnderstood(Exception):
    """What LlamaFactory made is not what it is known to make: nothing is said about it rather than something wrong."""


class Turn(NamedTuple):
    """One question and its answer, before the cutoff.

    Attributes:
        asks: role of the question: user | tool.
        answers: role of the answer: answer | call.
        head: tokens of the question that are prefix, system text and tools.
        source, target: their token ids.
        empty: the answer has no text.
    """

    asks: str
    answers: str
    head: int
    source: list[int]
    target: list[int]
    empty: bool


class Segment(NamedTuple):
    """Tokens [start, stop) of a row; `due`: they should be in the loss."""

    role: str
    turn: int
    start: int
    stop: int
    due: bool


@dataclass(frozen=True)
class Rules:
    """What the config says about labels.

    Attributes:
        train_on_prompt, mask_history: LlamaFactory's data arguments.
        efficient_eos: the template ends an answer by the first token of the next question (glm4).
        stops: token ids that end an answer.
        eos: the tokenizer's.
        vocabulary: rows of the embedding; None where not known.
    """

    train_on_prompt: bool = False
    mask_history: bool = False
    efficient_eos: bool = False
    stops: frozenset[int] = frozenset()
    eos: int | None = None
    vocabulary: int | None = None

    def taught(self, turn: int, turns: int) -> bool:
        """Whether the answer of this turn is in the loss by this config."""
        return not self.mask_history or turn == turns - 1


def end_of(target: list[int], stops: frozenset[int]) -> int | None:
    """Where an encoded answer's end token is; None where it has none."""
    for at in range(len(target) - 1, max(-1, len(target) - 1 - _ENDS_LIE_WITHIN), -1):
        if target[at] in stops:
            return at
    return None


def layout(turns: list[Turn], kept: list[tuple[int, int]], ids: list[int], rules: Rules) -> list[Segment]:
    """The segments of one encoded conversation, in order, without gaps.

    Args:
        turns: all turns of the conversation.
        kept: tokens of question and answer left by the cutoff, in the order in which LlamaFactory fills the row (from
            the last turn with `mask_history`); turns that found no room are not in it.
        ids: the row.
        rules: of the config.

    Raises:
        NotUnderstood: the row is not made of these turns.
    """
    count = len(turns)
    order = list(range(count))[::-1] if rules.mask_history else list(range(count))
    filled = sorted(zip(order, kept, strict=False))
    final = 1 if rules.efficient_eos else 0
    at = len(ids) - final - sum(s + t for _, (s, t) in filled)
    if at < 0:
        raise NotUnderstood("a row is shorter than its turns")
    found = [Segment("other", 0, 0, at, False)] if at else []
    for index, (s, t) in filled:
        turn = turns[index]
        if ids[at : at + s] != turn.source[:s] or ids[at + s : at + s + t] != turn.target[:t]:
            raise NotUnderstood("a row is not made of its turns")
        start = at
        if rules.efficient_eos and index and s and rules.taught(index - 1, count) and filled[0][0] < index:
            found.append(Segment("end", index - 1, at, at + 1, True))
            start += 1
        head = max(start, at + min(turn.head, s))
        if head > start:
            found.append(Segment("system", index, start, head, rules.train_on_prompt))
        if at + s > head:
            found.append(Segment(turn.asks, index, head, at + s, rules.train_on_prompt))
        at += s
        due = rules.taught(index, count)
        end = None if rules.efficient_eos else end_of(turn.target, rules.stops)
        border = at + (t if end is None else min(end, t))
        if border > at:
            found.append(Segment(turn.answers, index, at, border, due))
        if at + t > border:
            found.append(Segment("end", index, border, at + t, due))
        at += t
    if final:
        found.append(Segment("end", filled[-1][0] if filled else count - 1, at, at + 1, True))
    return found


def figures(
    turns: list[Turn], kept: list[tuple[int, int]], ids: list[int], labels: list[int], rules: Rules
) -> tuple[list[int], list[Segment]]:
    """The figures of one conversation in the order of `COLUMNS`, and its segments.

    `length` tokens; `whole` without a cutoff; `supervised` of these in the loss; `due` should be; `missing` should be
    and are not; `stray` are and should not; `altered` have a label that is not their token; `outside` ids outside the
    vocabulary; `learnable` in the loss and not end tokens; `spans` unbroken stretches in the loss; `turns`, `taught`
    (their answer is in the loss by this config), `empty` (taught, no text), `ends_due`/`ends_in` end tokens of uncut
    taught answers and those in the loss; `answers`/`calls` taught ones, `..._cut` those that lost text or end token,
    `beheaded` those that lost all, `turns_lost` turns that found no room at all, `prompts_cut` questions cut in
    the other turns; `checksum` hash of the row's token ids.

    Raises:
        NotUnderstood: the row is not made of these turns.
    """
    if len(labels) != len(ids):
        raise NotUnderstood(f"a row has {len(ids)} tokens and {len(labels)} labels")
    segments = layout(turns, kept, ids, rules)
    f = dict.fromkeys(COLUMNS, 0)
    f["length"] = len(ids)
    last, ended = False, set()
    for role, turn, start, stop, due in segments:
        size, part = stop - start, labels[start:stop]
        inside = size - part.count(IGNORE)
        f[role] += size
        f[f"{role}_in"] += inside
        if due:
            f["due"] += size
            f["missing"] += size - inside
        else:
            f["stray"] += inside
        if inside:
            f["spans"] += not (last and part[0] != IGNORE)
            if part != ids[start:stop]:
                f["altered"] += _altered(part, ids[start:stop], rules)
        last = part[-1] != IGNORE
        if role == "end" and part[0] != IGNORE:
            ended.add(turn)
    f["supervised"] = sum(f[f"{role}_in"] for role in ROLES)
    f["learnable"] = f["supervised"] - f["end_in"]
    f["outside"], f["checksum"] = _tokens(ids, rules.vocabulary)
    _count_turns(f, turns, kept, ended, rules)
    return list(f.values()), segments


def _count_turns(f: dict, turns: list[Turn], kept: list[tuple[int, int]], ended: set[int], rules: Rules) -> None:
    count = len(turns)
    order = range(count - 1, -1, -1) if rules.mask_history else range(count)
    left = dict(zip(order, kept, strict=False))
    f["turns"], f["turns_lost"] = count, count - len(left)
    f["whole"] = f["other"] + bool(rules.efficient_eos) + sum(len(t.source) + len(t.target) for t in turns)
    for index, turn in enumerate(turns):
        source, target = left.get(index, (0, 0))
        f["prompts_cut"] += index in left and source < len(turn.source)
        if not rules.taught(index, count):
            continue
        kind = "calls" if turn.answers == "call" else "answers"
        f["taught"] += 1
        f["empty"] += turn.empty
        f[kind] += 1
        end = None if rules.efficient_eos else end_of(turn.target, rules.stops)
        cut = target < (len(turn.target) if end is None else end + 1)  # a line break behind the end token is no loss
        f[f"{kind}_cut"] += cut
        f["beheaded"] += cut and target == 0
        f["ends_due"] += not cut
        f["ends_in"] += not cut and index in ended


def _altered(labels: list[int], ids: list[int], rules: Rules) -> int:
    """Labels that are neither left out nor their own token; the end token of `efficient_eos` is meant to differ."""
    meant = {rules.eos} if rules.efficient_eos else set()
    return sum(a not in (b, IGNORE) and a not in meant for a, b in zip(labels, ids, strict=True))


def _tokens(ids: list[int], vocabulary: int | None) -> tuple[int, int]:
    """Ids outside the vocabulary (a token that the tokenizer does not know is None), and the hash of all."""
    try:
        highest = max(ids, default=0)
    except TypeError:
        known = [token for token in ids if token is not None]
        return len(ids) - len(known) + _tokens(known, vocabulary)[0], 0
    outside = 0
    if vocabulary is not None and highest >= vocabulary:
        outside = sum(token >= vocabulary for token in ids)
    return outside, hash(tuple(ids))  # of whole numbers it is the same in every process
