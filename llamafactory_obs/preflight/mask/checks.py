"""The mask's checks over plain numbers. No LlamaFactory, no torch: what is judged can be tested by hand."""

from dataclasses import dataclass

from ... import texts
from ..result import ERROR, FAIL, PASS, SKIPPED, WARN, Check
from .causes import NO_ANSWER

#: share of answers (or calls) that may lose tokens to cutoff_len; more is a failure, any is a warning
CUT_LIMIT = 0.05
CALLS_CUT_LIMIT = 0.01
#: a share from here on is "all of it"
ALL = 0.99


@dataclass(frozen=True)
class Context:
    """What the config says.

    Attributes:
        stage: sft | pt | ...
        low, high: the wanted share; `usual`: it is the default or `obs: mask_range`, not a confirmed one.
        train_on_prompt, mask_history, packing, neat_packing: LlamaFactory's data arguments.
        cutoff_len: tokens.
        pads_in_loss: `ignore_pad_token_for_loss: false`.
        vocabulary: rows of the model's embedding; None where not known.
        tokenized: the rows were tokenized earlier: whose tokens they are is not known.
        template: its name.
    """

    stage: str = "sft"
    low: float = 0.2
    high: float = 0.4
    usual: bool = True
    train_on_prompt: bool = False
    mask_history: bool = False
    packing: bool = False
    neat_packing: bool = False
    cutoff_len: int = 2048
    pads_in_loss: bool = False
    vocabulary: int | None = None
    tokenized: bool = False
    template: str | None = None


def check_numbers(splits: list[dict], datasets: list[dict], context: Context) -> list[Check]:
    """All checks that need nothing but the numbers.

    Args:
        splits: `share.numbers` of train and eval, as far as there are any.
        datasets: the same per data set, with `drop_reasons` (reason -> rows) where rows are dropped.
        context: of the config.
    """
    if not splits or not any(one["rows"] + one["dropped"] for one in splits):
        return [
            Check(
                "rows",
                ERROR,
                0,
                "at least 1",
                texts.text("mask.checks.no_row"),
                texts.text("mask.checks.check_dataset"),
            )
        ]
    checks = [_share(one, context) for one in splits]
    checks += [_all_masked(datasets), _all_trained(datasets, context), _without_labels(datasets), _dropped(datasets)]
    if context.stage == "sft":
        checks += _segments(splits, context)
    elif context.stage == "pt":
        checks.append(_texts(splits))
    checks += [_vocabulary(splits, context), _padding(context)]
    return checks


def _share(one: dict, context: Context) -> Check:
    name = "share" if one["split"] == "train" else "eval_share"
    want = [0.99, 1.0] if context.stage == "pt" else [context.low, context.high]
    if one["share"] is None:
        return Check(name, ERROR, None, want, texts.text("mask.checks.no_token", split=one["split"]))
    spread = texts.text("mask.checks.spread", low=one["share_min"], high=one["share_max"], median=one["share_median"])
    text = texts.text("mask.checks.share", split=one["split"], share=one["share"], tokens=one["tokens"], spread=spread)
    value = round(one["share"], 6)
    if want[0] <= one["share"] <= want[1]:
        return Check(name, PASS, value, want, text)
    right = not (one["missing"] or one["stray"] or one["altered"])
    if context.tokenized:
        must = texts.text("mask.checks.earlier")
    else:
        must = texts.text("mask.checks.must", share=one["expected_share"]) + _why_share(one, context)
        left = texts.text("mask.checks.left") if one["rows_cut"] else ""
        must += texts.text("mask.checks.right", left=left) if right else texts.text("mask.checks.wrong")
    fix = texts.text("mask.checks.wrong_first") if not right else texts.text("mask.checks.look_or_confirm")
    return Check(
        name, FAIL, value, want, texts.text("mask.checks.joined", text=text, must=must), fix, confirmable=right
    )


def _why_share(one: dict, context: Context) -> str:
    if context.train_on_prompt:
        return texts.text("mask.checks.on_prompt")
    if context.mask_history:
        return texts.text("mask.checks.history", spans=one["spans_max"])
    answers = sum(one["by_role"].get(role, {}).get("tokens", 0) for role in ("answer", "call", "end"))
    return texts.text("mask.checks.answers", answers=answers, tokens=one["tokens"])


def _names(datasets: list[dict]) -> str:
    return ", ".join(f"{one['dataset']} ({one['split']})" for one in datasets)


def _all_masked(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["rows"] and not one["supervised"]]
    if not bad:
        return Check("all_masked", PASS, 0, 0, texts.text("mask.checks.data_sets"))
    text = texts.text("mask.checks.nothing", names=_names(bad))
    return Check("all_masked", FAIL, len(bad), 0, text, texts.text("mask.checks.check_data_set"))


def _all_trained(datasets: list[dict], context: Context) -> Check:
    asked = context.stage == "pt" or context.train_on_prompt
    bad = [one for one in datasets if one["share"] is not None and one["share"] >= ALL and not asked]
    if not bad:
        why = "asked for" if asked else texts.text("mask.checks.not_asked")
        return Check("all_trained", PASS, 0, 0, why)
    text = texts.text("mask.checks.everything", names=_names(bad))
    text += texts.text("mask.checks.learned")
    return Check("all_trained", FAIL, len(bad), 0, text, texts.text("mask.checks.check_columns"))


def _without_labels(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["without_labels"]]
    count, rows = sum(one["without_labels"] for one in bad), sum(one["rows"] for one in datasets)
    if not bad:
        return Check("rows_without_labels", PASS, 0, 0, texts.text("mask.checks.rows_learnable", rows=rows))
    text = texts.text("mask.checks.rows_empty", count=count, rows=rows, names=_names(bad))
    fix = texts.text("mask.checks.remove_empty")
    return Check("rows_without_labels", FAIL, count, 0, text, fix)


def _dropped(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["dropped"]]
    count, rows = sum(one["dropped"] for one in bad), sum(one["dropped"] + one["rows"] for one in datasets)
    if not bad:
        return Check("rows_dropped", PASS, 0, 0, texts.text("mask.checks.all_used", rows=rows))
    why = {}
    for one in bad:
        for reason, times in one.get("drop_reasons", {}).items():
            why[reason] = why.get(reason, 0) + times
    text = texts.text("mask.checks.left_out", count=count, rows=rows, names=_names(bad))
    text += "".join(
        texts.text("mask.checks.reason", times=times, reason=reason) for reason, times in list(why.items())[:4]
    )
    fix = texts.text("mask.checks.repair_rows")
    known = NO_ANSWER not in why and all(one["rows"] for one in datasets)
    return Check("rows_dropped", FAIL, count, 0, text, fix, confirmable=known)


def _segments(splits: list[dict], context: Context) -> list[Check]:
    if context.tokenized:
        names = ("prompts_out", "answers_in", "ends_in", "answers_cut", "calls_cut", "prompts_cut")
        why = texts.text("mask.checks.tokenized")
        return [Check(name, SKIPPED, None, None, why) for name in names]
    total = {key: sum(one[key] for one in splits) for key in splits[0] if isinstance(splits[0][key], int)}
    return [
        _prompts(splits, total, context),
        _answers(total),
        _ends(total),
        _cut("answers_cut", "answers", total, splits, context, CUT_LIMIT),
        _cut("calls_cut", "calls", total, splits, context, CALLS_CUT_LIMIT),
        _prompts_cut(total, context),
    ]


def _prompts(splits: list[dict], total: dict, context: Context) -> Check:
    inside = {}
    for one in splits:
        for role in ("system", "user", "tool", "other"):
            inside[role] = inside.get(role, 0) + one["by_role"].get(role, {}).get("in_loss", 0)
    inside = {role: count for role, count in inside.items() if count}
    count = sum(inside.values())
    if not count:
        return Check("prompts_out", PASS, 0, 0, texts.text("mask.checks.prompts_out"))
    text = texts.text("mask.checks.prompts_in", count=count) + ", ".join(f"{role} {n}" for role, n in inside.items())
    if context.train_on_prompt:
        return Check(
            "prompts_out",
            FAIL,
            count,
            0,
            texts.text("mask.checks.on_prompt_too", text=text),
            "train_on_prompt: false",
            True,
        )
    if context.mask_history and count <= total["turns"]:
        text += texts.text("mask.checks.hidden_ends")
        return Check("prompts_out", FAIL, count, 0, text, texts.text("mask.checks.history_or_accept"), True)
    return Check("prompts_out", FAIL, count, 0, text, texts.text("mask.checks.look"))


def _answers(total: dict) -> Check:
    bad = total["missing"] + total["altered"]
    if not bad:
        return Check("answers_in", PASS, 0, 0, texts.text("mask.checks.answers_in", due=total["due"]))
    text = texts.text("mask.checks.answers_not", missing=total["missing"], altered=total["altered"])
    return Check("answers_in", FAIL, bad, 0, text, texts.text("mask.checks.look"))


def _ends(total: dict) -> Check:
    due, inside = total["ends_due"], total["ends_in"]
    if not due:
        return Check(
            "ends_in", FAIL, 0, 1, texts.text("mask.checks.no_end"), texts.text("mask.checks.raise_cutoff_len")
        )
    if due == inside:
        return Check("ends_in", PASS, due, due, texts.text("mask.checks.ends_in", due=due))
    text = texts.text("mask.checks.ends_not", count=due - inside, due=due)
    return Check("ends_in", FAIL, inside, due, text, texts.text("mask.checks.check_template"), True)


def _cut(name: str, kind: str, total: dict, splits: list[dict], context: Context, limit: float) -> Check:
    count, cut = total[kind], total[name]
    word = texts.text("mask.checks.calls") if kind == "calls" else texts.text("mask.checks.answers_word")
    if not count:
        return Check(name, SKIPPED, None, None, texts.text("mask.checks.there_are_no", word=word))
    share = cut / count
    want = f"<= {limit:g}"
    if not cut:
        return Check(
            name,
            PASS,
            0.0,
            want,
            texts.text("mask.checks.whole", cutoff_len=context.cutoff_len, count=count, word=word),
        )
    text = texts.text("mask.checks.cut", cut=cut, count=count, word=word, share=share, cutoff_len=context.cutoff_len)
    if kind == "answers":
        rows = sum(one["rows"] for one in splits)
        text += texts.text("mask.checks.beheaded", lost=total["beheaded"], cut=total["rows_cut"], rows=rows)
    keep = max(one["cutoff_for_99"] or 0 for one in splits)
    fix = (
        f"cutoff_len: {keep}"
        if keep > context.cutoff_len
        else texts.text("mask.checks.longest", longest=total["longest"])
    )
    text += texts.text("mask.checks.keep", keep=keep)
    status = FAIL if share > limit else WARN
    return Check(name, status, round(share, 6), want, text, fix if status == FAIL else "", confirmable=True)


def _prompts_cut(total: dict, context: Context) -> Check:
    count, cut = total["turns"] - total["turns_lost"], total["prompts_cut"]
    share, want = cut / max(1, count), f"<= {CUT_LIMIT:g}"
    if not cut:
        return Check("prompts_cut", PASS, 0.0, want, texts.text("mask.checks.questions_whole", count=count))
    text = texts.text("mask.checks.questions_cut", cut=cut, count=count, share=share, cutoff_len=context.cutoff_len)
    text += texts.text("mask.checks.no_server")
    status = FAIL if share > CUT_LIMIT else WARN
    return Check(
        "prompts_cut", status, round(share, 6), want, text, texts.text("mask.checks.raise_cutoff_len"), confirmable=True
    )


def _texts(splits: list[dict]) -> Check:
    tokens, missing = sum(one["tokens"] for one in splits), sum(one["missing"] for one in splits)
    if not missing:
        return Check("answers_in", PASS, 0, 0, texts.text("mask.checks.all_in", tokens=tokens))
    text = texts.text("mask.checks.equal_pad", missing=missing, tokens=tokens)
    text += texts.text("mask.checks.also_end")
    return Check("answers_in", WARN, missing, 0, text)


def _vocabulary(splits: list[dict], context: Context) -> Check:
    if context.vocabulary is None:
        text = texts.text("mask.checks.no_vocabulary")
        return Check("vocabulary", ERROR, None, 0, text, texts.text("mask.checks.check_path"))
    outside = sum(one["outside"] for one in splits)
    if not outside:
        return Check("vocabulary", PASS, 0, 0, texts.text("mask.checks.below", vocabulary=context.vocabulary))
    text = texts.text("mask.checks.outside", outside=outside, vocabulary=context.vocabulary)
    fix = texts.text("mask.checks.special", template=context.template)
    return Check("vocabulary", FAIL, outside, 0, text, fix)


def _padding(context: Context) -> Check:
    if context.pads_in_loss and context.stage == "sft":
        text = texts.text("mask.checks.padding_in")
        return Check("padding_out", FAIL, "in the loss", "out of it", text, "ignore_pad_token_for_loss: true", True)
    return Check("padding_out", PASS, "out of it", "out of it", texts.text("mask.checks.padding_out"))
