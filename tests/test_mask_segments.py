"""Whose tokens are in the loss, on rows small enough to check by eye. Token 9 ends an answer."""

import pytest

from llamafactory_obs.preflight.mask.segments import COLUMNS, NotUnderstood, Rules, Segment, Turn, figures

STOP = frozenset({9})
ONE = Turn("user", "answer", 2, [1, 2, 3], [4, 5, 9, 8], False)  # two head tokens; a line break behind the end token
TWO = Turn("tool", "call", 0, [6], [7, 9], False)
ROW = [1, 2, 3, 4, 5, 9, 8, 6, 7, 9]
RIGHT = [-100, -100, -100, 4, 5, 9, 8, -100, 7, 9]
WHOLE = [(3, 4), (1, 2)]


def count(turns, kept, ids, labels, **rules):
    values, segments = figures(turns, kept, ids, labels, Rules(**{"stops": STOP, **rules}))
    return dict(zip(COLUMNS, values, strict=True)), segments


def test_a_right_row():
    f, segments = count([ONE, TWO], WHOLE, ROW, RIGHT)
    assert segments == [
        Segment("system", 0, 0, 2, False),
        Segment("user", 0, 2, 3, False),
        Segment("answer", 0, 3, 5, True),
        Segment("end", 0, 5, 7, True),
        Segment("tool", 1, 7, 8, False),
        Segment("call", 1, 8, 9, True),
        Segment("end", 1, 9, 10, True),
    ]
    assert (f["length"], f["whole"], f["supervised"], f["due"], f["learnable"], f["spans"]) == (10, 10, 6, 6, 3, 2)
    assert (f["missing"], f["stray"], f["altered"], f["answers_cut"], f["calls_cut"]) == (0, 0, 0, 0, 0)
    assert (f["answers"], f["calls"], f["ends_due"], f["ends_in"], f["taught"]) == (1, 1, 2, 2, 2)
    assert {role: f[role] for role in ("system", "user", "tool", "answer", "call", "end")} == {
        "system": 2,
        "user": 1,
        "tool": 1,
        "answer": 2,
        "call": 1,
        "end": 3,
    }


@pytest.mark.parametrize(
    ("at", "label", "wanted"),
    [
        (2, 3, {"stray": 1, "user_in": 1}),
        (0, 1, {"stray": 1, "system_in": 1}),
        (7, 6, {"stray": 1, "tool_in": 1}),
        (4, -100, {"missing": 1, "answer_in": 1}),
        (9, -100, {"missing": 1, "ends_in": 1}),
        (8, 5, {"altered": 1, "missing": 0}),
    ],
)
def test_one_wrong_label_is_seen(at, label, wanted):
    labels = list(RIGHT)
    labels[at] = label
    f, _ = count([ONE, TWO], WHOLE, ROW, labels)
    assert {key: f[key] for key in wanted} == wanted


def test_cutoff_takes_the_end_of_an_answer_and_a_whole_turn():
    f, segments = count([ONE, TWO], [(3, 1)], [1, 2, 3, 4], [-100, -100, -100, 4])
    assert segments[-1] == Segment("answer", 0, 3, 4, True)
    assert (f["answers_cut"], f["calls_cut"], f["beheaded"], f["turns_lost"], f["whole"]) == (1, 1, 1, 1, 10)
    assert (f["ends_due"], f["prompts_cut"]) == (0, 0)


def test_a_line_break_behind_the_end_token_is_no_loss():
    f, _ = count([ONE], [(3, 3)], [1, 2, 3, 4, 5, 9], [-100, -100, -100, 4, 5, 9])
    assert (f["answers_cut"], f["ends_due"], f["ends_in"], f["whole"]) == (0, 1, 1, 7)
    f, _ = count([ONE], [(3, 2)], [1, 2, 3, 4, 5], [-100, -100, -100, 4, 5])
    assert (f["answers_cut"], f["ends_due"], f["ends_in"]) == (1, 0, 0)


def test_a_call_cut_in_the_middle():
    call = Turn("user", "call", 0, [1], [4, 5, 6, 9], False)
    f, _ = count([call], [(1, 2)], [1, 4, 5], [-100, 4, 5])
    assert (f["calls_cut"], f["beheaded"], f["ends_due"]) == (1, 0, 0)


def test_mask_history_wants_the_last_answer_only():
    labels = [-100] * 8 + [7, 9]
    f, segments = count([ONE, TWO], WHOLE[::-1], ROW, labels, mask_history=True)
    assert (f["missing"], f["stray"], f["taught"], f["spans"], f["due"]) == (0, 0, 1, 1, 2)
    assert [s.turn for s in segments] == [0, 0, 0, 0, 1, 1, 1]
    f, _ = count([ONE, TWO], WHOLE[::-1], ROW, RIGHT, mask_history=True)
    assert (f["stray"], f["spans"]) == (4, 2)


def test_mask_history_drops_the_first_turns():
    f, segments = count([ONE, TWO], [(1, 2)], [6, 7, 9], [-100, 7, 9], mask_history=True)
    assert segments[0] == Segment("tool", 1, 0, 1, False) and f["turns_lost"] == 1 and f["answers_cut"] == 0


def test_train_on_prompt_wants_everything():
    f, _ = count([ONE, TWO], WHOLE, ROW, ROW, train_on_prompt=True)
    assert (f["due"], f["missing"], f["stray"]) == (10, 0, 0)


def test_the_next_question_ends_an_answer_with_efficient_eos():
    """glm4: the label is the EOS token while the input is the next turn's first token; one EOS closes the row."""
    one, two = Turn("user", "answer", 0, [1, 2], [4], False), Turn("user", "answer", 0, [1, 3], [5], False)
    ids, labels = [1, 2, 4, 1, 3, 5, 0], [-100, -100, 4, 0, -100, 5, 0]
    f, segments = count([one, two], [(2, 1), (2, 1)], ids, labels, efficient_eos=True, eos=0)
    assert [s.role for s in segments] == ["user", "answer", "end", "user", "answer", "end"]
    assert (f["altered"], f["stray"], f["missing"], f["ends_due"], f["ends_in"]) == (0, 0, 0, 2, 2)


def test_efficient_eos_leaves_end_tokens_behind_with_mask_history():
    """MASK-5: found 2 spans where 1 is expected; LlamaFactory labels the first token of each earlier question."""
    one, two = Turn("user", "answer", 0, [1, 2], [4], False), Turn("user", "answer", 0, [1, 3], [5], False)
    ids, labels = [1, 2, 4, 1, 3, 5, 0], [0, -100, -100, -100, -100, 5, 0]
    f, _ = count([one, two], [(2, 1), (2, 1)], ids, labels, efficient_eos=True, eos=0, mask_history=True)
    assert (f["stray"], f["spans"], f["user_in"], f["missing"]) == (1, 2, 1, 0)


def test_an_answer_without_an_end_token():
    f, _ = count([Turn("user", "answer", 0, [1], [4, 5], False)], [(1, 2)], [1, 4, 5], [-100, 4, 5])
    assert (f["ends_due"], f["ends_in"], f["end"]) == (1, 0, 0)


def test_token_ids_outside_the_vocabulary():
    f, _ = count([ONE, TWO], WHOLE, ROW, RIGHT, vocabulary=9)
    assert f["outside"] == 2
    none = Turn("user", "answer", 0, [None], [4, 9], False)
    f, _ = count([none], [(1, 2)], [None, 4, 9], [-100, 4, 9], vocabulary=10)
    assert f["outside"] == 1


@pytest.mark.parametrize("ids", [ROW[:-1], [0, *ROW[1:]]])
def test_what_is_not_understood_is_not_judged(ids):
    with pytest.raises(NotUnderstood):
        count([ONE, TWO], WHOLE, ids, RIGHT[: len(ids)])


def test_the_checksum_is_of_the_tokens():
    other = Turn("tool", "call", 0, [6], [5, 9], False)
    one, _ = count([ONE, TWO], WHOLE, ROW, RIGHT)
    two, _ = count([ONE, other], WHOLE, [*ROW[:8], 5, 9], [*RIGHT[:8], 5, 9])
    assert one["checksum"] != two["checksum"]
    assert {k: v for k, v in one.items() if k != "checksum"} == {k: v for k, v in two.items() if k != "checksum"}
