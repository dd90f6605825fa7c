"""Why a mask is wrong, as far as the raw rows and the entry in `dataset_info.json` show it. Plain mappings."""

from collections import Counter

from ... import texts
from ..result import FAIL, PASS, SKIPPED, Check

NO_ANSWER = "no assistant turn"

#: what a role or a column is usually called
_USUAL = {
    "assistant": {"assistant", "gpt", "chatgpt", "model", "bot", "ai", "output", "response", "answer", "completion"},
    "user": {"user", "human", "prompter", "instruction", "question", "query", "prompt"},
    "tool": {"tool", "observation", "tool_response", "function_response", "tool_result", "ipython"},
    "call": {"function_call", "tool_call", "tool_calls"},
}
_TAGS = {"user_tag": "user", "assistant_tag": "assistant", "observation_tag": "tool", "function_tag": "call"}
_COLUMNS = {"prompt": "user", "response": "assistant"}


def is_chat(attributes: dict) -> bool:
    """Whether rows hold a list of messages (sharegpt, openai) and not columns of texts (alpaca)."""
    return attributes.get("formatting") in ("sharegpt", "openai")


def tags_of(attributes: dict) -> dict[str, str]:
    """Role -> what the data set calls it."""
    return {role: attributes[tag] for tag, role in (*_TAGS.items(), ("system_tag", "system")) if attributes.get(tag)}


def usual_role(name: str) -> str | None:
    """The role that a tag or column of this name usually has."""
    return next((role for role, words in _USUAL.items() if str(name).lower() in words), None)


def swapped(attributes: dict) -> list[str]:
    """Tags (columns for alpaca) that call one role by another one's usual name, e.g. `user_tag: gpt`."""
    mapping = _TAGS if is_chat(attributes) else _COLUMNS
    found = []
    for key, role in mapping.items():
        name = attributes.get(key)
        usual = usual_role(name) if name else None
        if usual and usual != role and {usual, role} != {"tool", "call"}:
            found.append(texts.text("mask.causes.tag", key=key, name=name, usual=usual))
        elif usual and usual != role:
            found.append(f"{key}: {name} (usually the tool {'reply' if usual == 'tool' else 'call'})")
    return found


def check_tags(sources: list[tuple[str, dict]]) -> Check:
    """The entries of all data sets, `(name, attributes)`: is one role called by another one's name?"""
    bad = {name: words for name, attributes in sources if (words := swapped(attributes))}
    if not sources:
        return Check("role_tags", SKIPPED, None, 0, texts.text("mask.causes.earlier"))
    if not bad:
        return Check("role_tags", PASS, 0, 0, texts.text("mask.causes.usual_names"))
    text = "; ".join(f"{name}: {', '.join(words)}" for name, words in bad.items())
    text = texts.text("mask.causes.swapped", text=text)
    return Check("role_tags", FAIL, len(bad), 0, text, texts.text("mask.causes.correct_tags"), True)


def why_dropped(row: dict | None, attributes: dict) -> str:
    """Why LlamaFactory leaves out a row, in a few words that are the same for alike rows."""
    if row is None:
        return texts.text("mask.causes.stream")
    if not is_chat(attributes):
        answer = row.get(attributes.get("response") or "")
        return NO_ANSWER if not isinstance(answer, str) else texts.text("mask.causes.not_known")
    messages = row.get(attributes.get("messages") or "")
    if not isinstance(messages, list) or not messages:
        return texts.text("mask.causes.no_messages")
    tags = tags_of(attributes)
    roles = [message.get(attributes.get("role_tag")) for message in messages if isinstance(message, dict)]
    unknown = sorted({str(role) for role in roles} - set(tags.values()))
    if unknown:
        return texts.text("mask.causes.unknown_role", role=unknown[0], known=", ".join(tags.values()))
    names = {name: role for role, name in tags.items()}
    path = [names[role] for role in roles]
    path = path[1:] if path[0] == "system" else path
    if not {"assistant", "call"} & set(path):
        return NO_ANSWER
    if path[0] in ("assistant", "call"):
        return texts.text("mask.causes.begins", role=roles[-len(path)])
    if path[-1] not in ("assistant", "call"):
        return texts.text("mask.causes.no_answer")
    return texts.text("mask.causes.alternate")


def reasons(rows: list[dict | None], attributes: dict) -> dict[str, int]:
    """Reason -> rows, the most frequent first."""
    return dict(Counter(why_dropped(row, attributes) for row in rows).most_common())


def check_columns(name: str, row: dict, attributes: dict, why: str, streaming_local: bool) -> Check:
    """LlamaFactory raised while it read a data set: which key is missing, and what is there.

    Args:
        name: of the data set.
        row: its first row; {} where none came.
        attributes: LlamaFactory's `DatasetAttr` as a mapping.
        why: what it raised.
        streaming_local: `streaming` of local files.
    """
    fix = texts.text("mask.causes.correct_columns")
    if not row:
        text = texts.text("mask.causes.no_row", name=name)
        if streaming_local:
            text += texts.text("mask.causes.shards")
            fix = texts.text("mask.causes.one_worker")
        return Check("columns", FAIL, 0, "at least 1 row", text, fix)
    wanted = ["messages"] if is_chat(attributes) else ["prompt", "query", "response", "history"]
    missing = [attributes[key] for key in (*wanted, "system", "tools") if attributes.get(key) not in (None, *row)]
    have = texts.text("mask.causes.rows_have", keys=", ".join(map(str, row)))
    messages = row.get(attributes.get("messages") or "")
    if is_chat(attributes) and isinstance(messages, list) and messages and isinstance(messages[0], dict):
        keys = [attributes[key] for key in ("role_tag", "content_tag") if attributes.get(key) not in messages[0]]
        if keys:
            missing, have = keys, texts.text("mask.causes.messages_have", keys=", ".join(map(str, messages[0])))
    if missing:
        text = texts.text("mask.causes.no_key", name=name, keys=", ".join(map(repr, missing)), have=have)
    else:
        text = texts.text("mask.causes.raises", name=name, why=why)
    return Check("columns", FAIL, ", ".join(map(str, missing)) or why, "the keys of the rows", text, fix)


def likely_causes(splits: list[dict], datasets: list[dict], checks: list, context) -> list[str]:
    """What most likely makes the mask wrong, the strongest evidence first; empty where nothing is."""
    failed = {check.name for check in checks if check.status == FAIL}
    causes = []
    for one in datasets:
        share = one["dropped"] / max(1, one["dropped"] + one["rows"])
        for reason, count in one.get("drop_reasons", {}).items():
            if share >= 0.5 and reason != NO_ANSWER:
                causes.append(texts.text("mask.causes.wrong_tags", data_set=one["dataset"], count=count, reason=reason))
    if "role_tags" in failed or "columns" in failed:
        causes.append(texts.text("mask.causes.wrong_tags_or_columns"))
    if {"vocabulary", "template_tokens", "template_parity"} & failed or ("ends_in" in failed and not _cuts(splits)):
        causes.append(texts.text("mask.causes.wrong_template", template=context.template))
    if context.train_on_prompt and "share" in failed:
        causes.append(texts.text("mask.causes.train_on_prompt"))
    if context.mask_history and {"share", "eval_share", "prompts_out"} & failed:
        causes.append(texts.text("mask.causes.mask_history"))
    if {"answers_cut", "calls_cut", "prompts_cut"} & failed or (
        {"rows_without_labels", "all_masked"} & failed and _cuts(splits)
    ):
        causes.append(texts.text("mask.causes.cutoff_len", cutoff_len=context.cutoff_len))
    return list(dict.fromkeys(causes))


def _cuts(splits: list[dict]) -> bool:
    return any(one["rows_cut"] for one in splits)
