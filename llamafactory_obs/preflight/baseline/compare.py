"""A recorded baseline against what this config would be measured under now: each check names old -> new."""

from ... import texts
from ...probe.judge import LAYERS
from ...suite import Suite
from ..result import ERROR, FAIL, PASS, WARN, Check
from .conditions import sampling_now

_NOT = "not recorded"


def check_model(old: dict, new: dict, fix: str) -> Check:
    """The model's content; its name where the content is not known.

    Args:
        old, new: see `base_model.fingerprint`.
    """

    def check(status: str, text: str) -> Check:
        return Check("model", status, old.get("name"), new["name"], text, "" if status == PASS else fix)

    name = texts.text("baseline.compare.from_to", old=old.get("name", _NOT), new=new["name"])
    renamed = old.get("name") != new["name"]
    content = [(old.get(key), new[key]) for key in ("weights_sha256", "config_sha256")]
    if old.get("weights_sha256") and new["weights_sha256"]:
        if all(before == now for before, now in content):
            more = texts.text("baseline.compare.recorded_as", old=old.get("name", _NOT)) if renamed else ""
            return check(PASS, texts.text("baseline.compare.measured", name=new["name"], more=more))
        if renamed:
            return check(FAIL, texts.text("baseline.compare.another", name=name))
        if content[0][0] == content[0][1]:
            return check(FAIL, texts.text("baseline.compare.config", name=new["name"], change=_short(*content[1])))
        changed = _changed_files(old.get("files"), new["files"])
        return check(
            FAIL, texts.text("baseline.compare.weights", name=new["name"], change=_short(*content[0]), changed=changed)
        )
    if renamed:
        return check(FAIL, texts.text("baseline.compare.another", name=name))
    revisions = (old.get("revision"), new["revision"])
    if revisions[0] != revisions[1]:
        return check(
            FAIL,
            texts.text(
                "baseline.compare.revision", name=new["name"], old=revisions[0] or _NOT, new=revisions[1] or "none"
            ),
        )
    where = "here" if not new["weights_sha256"] else texts.text("baseline.compare.then")
    return check(ERROR, texts.text("baseline.compare.unseen", name=new["name"], where=where))


def check_suite(old: dict, rows: list, suite: Suite, probes: Suite | None, fix: str) -> Check:
    """The suite's content, and that all of its probes were asked.

    Args:
        rows: of the record.
        suite: what is asked now.
        probes: what the `probe` callback asks, None where it has no suite of its own.
    """
    sha, name = str(old.get("sha256", _NOT)), old.get("name", _NOT)
    if sha != suite.sha256:
        text = texts.text(
            "baseline.compare.another_suite", name=name, old=sha[:12], new=suite.name, now=suite.sha256[:12]
        )
        if name == suite.name:
            text = texts.text("baseline.compare.suite_changed", name=name, old=sha[:12], now=suite.sha256[:12])
        return Check("suite", FAIL, sha, suite.sha256, text, fix)
    asked, wanted = {row["probe"] for row in rows}, {probe.name for probe in suite.probes}
    if asked != wanted:
        missing = ", ".join(sorted(wanted - asked)) or "none"
        text = texts.text(
            "baseline.compare.asked", asked=len(asked & wanted), of=len(wanted), suite=suite.name, missing=missing
        )
        return Check("suite", FAIL, len(asked & wanted), len(wanted), text, fix)
    text = texts.text("baseline.compare.suite", name=suite.name, of=len(wanted), sha=sha[:12])
    if probes is not None and probes.sha256 != sha:
        text += texts.text("baseline.compare.other_probes", name=probes.name)
        return Check("suite", WARN, sha, suite.sha256, text, texts.text("baseline.compare.one_suite"))
    return Check("suite", PASS, sha, suite.sha256, text)


def check_template(old: dict, new: dict, same_suite: bool, fix: str) -> Check:
    """How prompts are rendered.

    Args:
        old, new: see `conditions.rendering_of`.
        same_suite: else the hashes of the prompts say nothing.
    """
    settings = [old.get("settings") if isinstance(old.get("settings"), dict) else {}, new["settings"]]
    found = [
        _arrow("template", old.get("key"), new["key"]),
        _arrow(texts.text("baseline.compare.tool_format"), *_both(old, new, "tool_format")),
    ]
    found += [_arrow(name, *_both(*settings, name)) for name in sorted(settings[0].keys() | settings[1].keys())]
    found.append(_arrow(texts.text("baseline.compare.stop_tokens"), *_both(old, new, "stop_ids")))
    differs = [one for one in found if one]
    prompts = _both(old, new, "prompts_sha256")
    if not differs and same_suite and prompts[0] != prompts[1]:
        differs = [texts.text("baseline.compare.other_prompts", change=_short(*prompts))]
    if differs:
        return Check("template", FAIL, old.get("key"), new["key"], "; ".join(differs), fix)
    by = "" if same_suite else texts.text("baseline.compare.by_name")
    return Check(
        "template",
        PASS,
        old.get("key"),
        new["key"],
        texts.text("baseline.compare.template", key=new["key"], tool_format=new["tool_format"], by=by),
    )


def check_sampling(old: dict, backend: dict, suite: Suite, fix: str) -> Check:
    """What was sent against what is sent now.

    Args:
        old: `{"settings", "max_new_tokens"}`.
        backend: `{"name", "where"}` that measured.
    """
    name, where = backend.get("name"), backend.get("where")
    now = sampling_now(name)
    if now is None:
        text = f"by which backend it was measured is {'not recorded' if name is None else f'not understood: {name!r}'}"
        return Check("sampling", FAIL, name, "vllm or local", text, fix)
    before = old.get("settings") if isinstance(old.get("settings"), dict) else {}
    found = [_arrow(key, *_both(before, now, key)) for key in sorted(before.keys() | now.keys())]
    found.append(_arrow("max_new_tokens", old.get("max_new_tokens", _NOT), suite.max_new_tokens))
    differs = [one for one in found if one]
    if differs:
        return Check("sampling", FAIL, before, dict(now), "; ".join(differs), fix)
    return Check(
        "sampling",
        PASS,
        before,
        dict(now),
        texts.text("baseline.compare.greedy", tokens=suite.max_new_tokens, where=where),
    )


def check_layers(old: dict, can_judge: dict, suite: str, fix: str) -> Check:
    """All four scores.

    Args:
        old: layer -> `{"right", "of"}`.
        can_judge: layer -> the number of probes that can judge it.
    """
    missing = [layer for layer in LAYERS if layer not in old]
    empty = [layer for layer in LAYERS if layer in old and not old[layer]["of"]]
    blind = [layer for layer in empty if not can_judge.get(layer)]
    shown = ", ".join(f"{layer} {old[layer]['right']}/{old[layer]['of']}" for layer in LAYERS if layer in old)
    value = len(LAYERS) - len(missing) - len(blind)
    if missing:
        text = texts.text("baseline.compare.missing", value=value, missing=", ".join(missing), shown=shown or "none")
        return Check("layers", FAIL, value, 4, text, fix)
    if blind:
        text = texts.text("baseline.compare.blind", suite=suite, layers=", ".join(blind), shown=shown)
        return Check("layers", FAIL, value, 4, text, texts.text("baseline.compare.add"))
    if empty:
        text = texts.text("baseline.compare.no_call", shown=shown, layers=", ".join(empty))
        return Check("layers", WARN, 4, 4, text)
    return Check("layers", PASS, 4, 4, shown)


def _both(old: dict, new: dict, key: str) -> tuple:
    return old.get(key, _NOT), new.get(key, "none")


def _arrow(what: str, before: object, now: object) -> str:
    same = before == now and isinstance(before, bool) == isinstance(now, bool)  # 1 is 1.0, but not true
    return "" if same else f"{what} {before} -> {now}"


def _short(before: object, now: object) -> str:
    return f"{str(before)[:12]} -> {str(now)[:12]}"


def _changed_files(old: object, new: list) -> str:
    hashes = [
        {row["file"]: row.get("sha256") for row in rows if isinstance(row, dict) and "file" in row}
        for rows in (old if isinstance(old, list) else [], new)
    ]
    names = [name for name in sorted(hashes[0] | hashes[1]) if hashes[0].get(name) != hashes[1].get(name)]
    return ", ".join(names[:3]) + (texts.text("baseline.compare.more", count=len(names) - 3) if len(names) > 3 else "")
