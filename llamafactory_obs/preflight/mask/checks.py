"""The mask's checks over plain numbers. No LlamaFactory, no torch: what is judged can be tested by hand."""

from dataclasses import dataclass

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
        return [Check("rows", ERROR, 0, "at least 1", "no row was read: nothing could be judged", "check `dataset`")]
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
        return Check(name, ERROR, None, want, f"{one['split']}: no token to take a share of")
    spread = f"rows {one['share_min']:.2f} to {one['share_max']:.2f}, median {one['share_median']:.2f}"
    text = f"{one['split']}: {one['share']:.3f} of {one['tokens']} real tokens are in the loss ({spread})"
    value = round(one["share"], 6)
    if want[0] <= one["share"] <= want[1]:
        return Check(name, PASS, value, want, text)
    right = not (one["missing"] or one["stray"] or one["altered"])
    if context.tokenized:
        must = "whose tokens these are is not known: they were tokenized earlier"
    else:
        must = f"this configuration must give {one['expected_share']:.3f}" + _why_share(one, context)
        left = " that cutoff_len leaves" if one["rows_cut"] else ""
        must += f"; every segment{left} is right" if right else "; segments are WRONG, see the other checks"
    fix = "wrong segments first" if not right else "look at the rows; if this share is meant, confirm it"
    return Check(name, FAIL, value, want, f"{text}; {must}", fix, confirmable=right)


def _why_share(one: dict, context: Context) -> str:
    if context.train_on_prompt:
        return " (train_on_prompt puts every token into the loss)"
    if context.mask_history:
        return f" (mask_history leaves the last answer only, {one['spans_max']} span(s) a row at most)"
    answers = sum(one["by_role"].get(role, {}).get("tokens", 0) for role in ("answer", "call", "end"))
    return f" (answers, tool calls and their end tokens are {answers} of {one['tokens']} tokens)"


def _names(datasets: list[dict]) -> str:
    return ", ".join(f"{one['dataset']} ({one['split']})" for one in datasets)


def _all_masked(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["rows"] and not one["supervised"]]
    if not bad:
        return Check("all_masked", PASS, 0, 0, "every data set has tokens in the loss")
    text = f"nothing at all is in the loss of {_names(bad)}: the loss would be 0 and nothing learned"
    return Check("all_masked", FAIL, len(bad), 0, text, "check template, tags and cutoff_len of this data set")


def _all_trained(datasets: list[dict], context: Context) -> Check:
    asked = context.stage == "pt" or context.train_on_prompt
    bad = [one for one in datasets if one["share"] is not None and one["share"] >= ALL and not asked]
    if not bad:
        why = "asked for" if asked else "no data set has its prompts in the loss as well"
        return Check("all_trained", PASS, 0, 0, why)
    text = f"(nearly) every token is in the loss of {_names(bad)}, which nobody asked for: there is no prompt, or it is"
    text += " part of what is learned"
    return Check("all_trained", FAIL, len(bad), 0, text, "check columns and template; `train_on_prompt: true` asks")


def _without_labels(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["without_labels"]]
    count, rows = sum(one["without_labels"] for one in bad), sum(one["rows"] for one in datasets)
    if not bad:
        return Check("rows_without_labels", PASS, 0, 0, f"each of {rows} rows has something to learn from")
    text = f"{count} of {rows} rows have nothing to learn from (no label, or empty answers only): {_names(bad)}"
    fix = "remove these rows, or raise cutoff_len where it took their answers"
    return Check("rows_without_labels", FAIL, count, 0, text, fix)


def _dropped(datasets: list[dict]) -> Check:
    bad = [one for one in datasets if one["dropped"]]
    count, rows = sum(one["dropped"] for one in bad), sum(one["dropped"] + one["rows"] for one in datasets)
    if not bad:
        return Check("rows_dropped", PASS, 0, 0, f"LlamaFactory uses all {rows} rows")
    why = {}
    for one in bad:
        for reason, times in one.get("drop_reasons", {}).items():
            why[reason] = why.get(reason, 0) + times
    text = f"LlamaFactory leaves out {count} of {rows} rows, without an error: {_names(bad)}"
    text += "".join(f"; {times}: {reason}" for reason, times in list(why.items())[:4])
    fix = "repair or remove these rows, or correct the tags in dataset_info.json"
    known = NO_ANSWER not in why and all(one["rows"] for one in datasets)
    return Check("rows_dropped", FAIL, count, 0, text, fix, confirmable=known)


def _segments(splits: list[dict], context: Context) -> list[Check]:
    if context.tokenized:
        names = ("prompts_out", "answers_in", "ends_in", "answers_cut", "calls_cut", "prompts_cut")
        why = "tokenized_path: rows were tokenized earlier, whose tokens they are is not known"
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
        return Check("prompts_out", PASS, 0, 0, "system, user and tool replies are out of the loss")
    text = f"{count} prompt tokens are in the loss: " + ", ".join(f"{role} {n}" for role, n in inside.items())
    if context.train_on_prompt:
        return Check("prompts_out", FAIL, count, 0, f"{text} (train_on_prompt)", "train_on_prompt: false", True)
    if context.mask_history and count <= total["turns"]:
        text += "; end tokens of answers that mask_history hides: LlamaFactory labels them with this template"
        return Check("prompts_out", FAIL, count, 0, text, "mask_history: false, or accept it", True)
    return Check("prompts_out", FAIL, count, 0, text, "look at the rows: the mask is wrong")


def _answers(total: dict) -> Check:
    bad = total["missing"] + total["altered"]
    if not bad:
        return Check("answers_in", PASS, 0, 0, f"all {total['due']} tokens of answers and tool calls are in the loss")
    text = (
        f"{total['missing']} tokens that should be learned are not in the loss, {total['altered']} have another label"
    )
    return Check("answers_in", FAIL, bad, 0, text, "look at the rows: the mask is wrong")


def _ends(total: dict) -> Check:
    due, inside = total["ends_due"], total["ends_in"]
    if not due:
        return Check("ends_in", FAIL, 0, 1, "no answer is whole: no end token is learned", "raise cutoff_len")
    if due == inside:
        return Check("ends_in", PASS, due, due, f"the end token of all {due} whole answers is in the loss")
    text = f"{due - inside} of {due} whole answers have no end token in the loss: the model may never learn to stop"
    return Check("ends_in", FAIL, inside, due, text, "check `template`: its stop word must follow an answer", True)


def _cut(name: str, kind: str, total: dict, splits: list[dict], context: Context, limit: float) -> Check:
    count, cut = total[kind], total[name]
    word = "tool calls" if kind == "calls" else "answers"
    if not count:
        return Check(name, SKIPPED, None, None, f"there are no {word}")
    share = cut / count
    want = f"<= {limit:g}"
    if not cut:
        return Check(name, PASS, 0.0, want, f"cutoff_len {context.cutoff_len} leaves all {count} {word} whole")
    text = f"{cut} of {count} {word} ({share:.1%}) lose their end to cutoff_len {context.cutoff_len}"
    if kind == "answers":
        rows = sum(one["rows"] for one in splits)
        text += f", {total['beheaded']} answers or calls lose everything; {total['rows_cut']} of {rows} rows are cut"
    keep = max(one["cutoff_for_99"] or 0 for one in splits)
    fix = f"cutoff_len: {keep}" if keep > context.cutoff_len else f"the longest row needs {total['longest']}"
    text += f"; cutoff_len {keep} would keep 99% of the rows whole"
    status = FAIL if share > limit else WARN
    return Check(name, status, round(share, 6), want, text, fix if status == FAIL else "", confirmable=True)


def _prompts_cut(total: dict, context: Context) -> Check:
    count, cut = total["turns"] - total["turns_lost"], total["prompts_cut"]
    share, want = cut / max(1, count), f"<= {CUT_LIMIT:g}"
    if not cut:
        return Check("prompts_cut", PASS, 0.0, want, f"all {count} questions are whole")
    text = f"{cut} of {count} questions ({share:.1%}) lose their end to cutoff_len {context.cutoff_len}: the answer"
    text += " that is learned follows a prompt that no server will send"
    status = FAIL if share > CUT_LIMIT else WARN
    return Check("prompts_cut", status, round(share, 6), want, text, "raise cutoff_len", confirmable=True)


def _texts(splits: list[dict]) -> Check:
    tokens, missing = sum(one["tokens"] for one in splits), sum(one["missing"] for one in splits)
    if not missing:
        return Check("answers_in", PASS, 0, 0, f"all {tokens} tokens are in the loss")
    text = (
        f"{missing} of {tokens} tokens equal the padding token, which the collator leaves out of the loss: where it is"
    )
    text += " also the end token, the end of a text is never learned"
    return Check("answers_in", WARN, missing, 0, text)


def _vocabulary(splits: list[dict], context: Context) -> Check:
    if context.vocabulary is None:
        text = "the model's config could not be read: how many token ids it knows is not known"
        return Check("vocabulary", ERROR, None, 0, text, "check model_name_or_path")
    outside = sum(one["outside"] for one in splits)
    if not outside:
        return Check("vocabulary", PASS, 0, 0, f"all token ids are below {context.vocabulary}")
    text = f"{outside} token ids are outside the model's vocabulary ({context.vocabulary}): training would crash"
    fix = f"template {context.template} brings special tokens that this tokenizer lacks: use the model's own template"
    return Check("vocabulary", FAIL, outside, 0, text, fix)


def _padding(context: Context) -> Check:
    if context.pads_in_loss and context.stage == "sft":
        text = "ignore_pad_token_for_loss: false gives every padded position a label: the model learns to write padding"
        return Check("padding_out", FAIL, "in the loss", "out of it", text, "ignore_pad_token_for_loss: true", True)
    return Check("padding_out", PASS, "out of it", "out of it", "padding is out of the loss")
