"""One resume in words: the verdict, why, what was not restored, and the one thing to do."""

from ..texts import language, text
from .said import BROKEN, DIFFERS, EQUAL, EXACT, FEW, NOTHING, UNKNOWN, VERDICTS, Continuity, made_twice

#: what is told of a resume that goes on; the first that is known of those that say the same
_TOLD = (("samples", "epoch"), ("learning_rate",), ("loss",), ("gradient_norm",))


def headline(said: Continuity, lang: str | None = None) -> str:
    """The verdict in a few words."""
    resume = text(f"continuity.{'at' if said.row_steps == 1 else 'before'}", lang, step=said.step)
    return text(f"continuity.{VERDICTS[said.verdict]}", lang, resume=resume, rows=said.rows)


def in_words(said: Continuity, folder: str = "", lang: str | None = None) -> str:
    """Verdict, evidence, what to do now.

    Args:
        folder: the run's, for a command; "" where nothing is to be advised.
    """
    parts = [one.words(lang) for one in said.reasons] if said.verdict == BROKEN else _evidence(said, lang)
    if said.verdict != BROKEN and said.not_restored:
        parts.append(lost(said, lang))
    parts += [one.words(lang) for one in said.notes]
    zh = _is_chinese(lang)
    line = headline(said, lang) + (("：" if zh else ": ") + ("；" if zh else "; ").join(parts) if parts else "")
    line += "。" if zh else "."
    advice = _advice(said, folder, lang)
    return line + (advice if zh else f" {advice}") if advice else line


def lost(said: Continuity, lang: str | None = None) -> str:
    """What was not restored."""
    names = [text(f"continuity.part.{one.part}", lang) for one in said.not_restored]
    return text("continuity.not_restored", lang, parts=("、" if _is_chinese(lang) else ", ").join(names))


def _evidence(said: Continuity, lang: str | None) -> list[str]:
    if said.verdict in (FEW, NOTHING):
        return []
    equal = [column for column in said.columns.values() if column.compared]
    if said.verdict == EXACT or (equal and all(column.status == EQUAL for column in equal)):
        names = [text(f"continuity.column.{column.name}", lang) for column in equal]
        columns = ("、" if _is_chinese(lang) else ", ").join(names)
        key = "continuity.all_equal" if said.segment is not None else "continuity.all_equal_logged"
        return [text(key, lang, made=made_twice(said.made_twice, said.row_steps, lang), columns=columns)]
    found = []
    for names in _TOLD:
        known = [said.columns[name] for name in names if said.columns[name].status != UNKNOWN]
        if known and (known[0].name != "gradient_norm" or known[0].status in (EQUAL, DIFFERS)):
            found.append(known[0].told.words(lang))
    return found


def _advice(said: Continuity, folder: str, lang: str | None) -> str:
    if said.faded:
        return text("continuity.faded", lang)
    if said.verdict != BROKEN or not folder:
        return ""
    parts = {one.part for one in said.not_restored}
    if parts == {"data_order"}:
        return text("continuity.do_data", lang)
    if parts == {"scheduler"} and all(one.by == "numbers" for one in said.not_restored):
        return text("continuity.do_rate", lang)
    return text("continuity.do_broken", lang, dir=folder)


def _is_chinese(lang: str | None) -> bool:
    return (lang or language()) == "zh"
