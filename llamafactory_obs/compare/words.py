"""What a comparison says in words, for the terminal and the page alike."""

import math

from ..charts.text import number
from ..texts import text
from .keys import FIRST
from .model import Comparison, CurveParting, Difference, Pair, Verdict

_SHA = 8


def t(key: str, /, **values: object) -> str:
    """A text of `texts/*/compare.toml`."""
    return text(f"compare.{key}", **values)


def percent(level: float, error: float | None = None) -> str:
    """ln(b / a) as a percentage without its sign, with its uncertainty: `12.6% ± 1.7%`."""
    size = abs(math.expm1(min(level, 50.0)))
    if size >= 10:
        return f"x{size + 1:.3g}"
    if error is None or not math.isfinite(error):
        return f"{100 * size:.3g}%"
    return f"{100 * size:.3g}% ± {100 * error * math.exp(min(level, 50.0)):.2g}%"


def change(level: float, error: float | None = None) -> str:
    """`12.6% ± 1.7% lower`."""
    if level == 0 and not error:
        return t("equal")
    return t("lower" if level < 0 else "higher", percent=percent(level, error))


def verdict_head(found: Verdict) -> str:
    """The judgement in a few words."""
    return t(f"verdict.{found.state}", run=found.better or "")


def verdict_sentence(comparison: Comparison) -> str:
    """The judgement and what it rests on, one sentence."""
    found = comparison.verdict
    lines = evidence(found)
    return verdict_head(found) + (f": {t('joint').join(lines)}" if lines else "") + t("stop")


def evidence(found: Verdict) -> list[str]:
    """What a verdict rests on, the heaviest first."""
    return [_evidence(code, values) for code, values in found.evidence]


def _evidence(code: str, values: dict) -> str:
    if code in ("eval", "other_eval_set", "eval_equal"):
        return t(f"evidence.{code}", **values, change=change(values["difference"]))
    if code.startswith("seeds_"):
        return t(f"evidence.{code}", change=change(values["level"], values["error"]))
    if code.startswith("train_"):
        return t(f"evidence.{code}", **values, change=change(values["last"], values["last_error"]))
    return t(f"evidence.{code}", **values)


def value(row: Difference, side: object) -> str:
    """One side of a difference; hashes are shortened."""
    if side is None:
        return t("none")
    if isinstance(side, bool):
        return str(side).lower()
    if isinstance(side, float):
        return f"{side:.6g}"
    if isinstance(side, (list, tuple)):
        return ", ".join(value(row, one) for one in side) or t("none")
    if isinstance(side, dict):
        if isinstance(side.get("name"), str):
            return side["name"]
        return ", ".join(f"{name} {value(row, one)}" for name, one in side.items() if one not in (None, {}, []))
    said = " ".join(str(side).split())
    return said[:_SHA] if row.key.endswith(("sha256", "sha")) and len(said) > 16 else said


def relation_line(pair: Pair) -> str:
    """How the two are related; "" where the verdict says it."""
    return t(f"relation.{pair.relation}") if pair.relation in ("nondeterminism", "unknown") else ""


def shown_differences(pair: Pair) -> tuple[dict[str, list[Difference]], list[str]]:
    """Group -> its rows, without the packages that training does not call itself: their names apart."""
    groups: dict[str, list[Difference]] = {}
    others = []
    for row in pair.differences.rows:
        if row.group == "packages" and row.key not in FIRST:
            others.append(row.key)
        else:
            groups.setdefault(row.group, []).append(row)
    return groups, others


def bits_line(pair: Pair) -> str:
    """Bit by bit; "" where steps are not comparable."""
    bits = pair.exact
    if bits is None:
        return ""
    if not bits.first:
        return t("bits.equal_rounded" if bits.rounded else "bits.equal", steps=bits.steps, columns=len(bits.columns))
    first = bits.first[0]
    names = [one.column for one in bits.first if one.step == first.step]
    shown = ", ".join(names[:3]) + (t("comma") + t("and_more", count=len(names) - 3) if len(names) > 3 else "")
    if bits.last_equal is None:
        return t("bits.from_start", step=first.step, columns=shown)
    said = t("bits.first", last=bits.last_equal, step=first.step, columns=shown, a=first.a, b=first.b)
    largest = max(abs(first.a), abs(first.b))
    if not 0 < largest < math.inf:
        return said
    size = abs(first.b - first.a) / largest
    return said + bracket(t("bits.relative", size=f"{size:.1e}" if size < 1e-3 else f"{size:.3g}"))


def bracket(said: str) -> str:
    """A remark behind something."""
    return t("bracket", said=said) if said else ""


def curve_line(found: CurveParting) -> str:
    """What one curve does."""
    parting = found.parting
    said = t(
        "curve.seeds" if found.seeds else f"curve.{parting.kind}",
        since=found.since,
        until=found.until,
        sure=t("sure", seen=found.seen),
        change=change(parting.level, parting.error),
        last=change(parting.last, parting.last_error),
        rows=parting.rows,
    )
    return (
        said
        if not math.isfinite(parting.noise)
        else f"{said}{t('joint')}{t('curve.noise', noise=percent(parting.noise))}"
    )


def spread_line(comparison: Comparison) -> str:
    """How far seeds alone lie apart; "" where no run shows it."""
    found = comparison.spread
    if found is None or len(comparison.pairs) == len(found.runs):
        return ""
    known = {"train_loss": found.train, "eval_best": found.eval}
    sizes = [t(f"fact.{name}") + bracket(percent(size)) for name, size in known.items() if size is not None]
    return t("spread", runs=", ".join(found.runs), sizes=t("comma").join(sizes))


def axis_title(pair: Pair) -> str:
    return t("curves_by", name=t(f"axis.{pair.axis.name}"))


def axis_why(pair: Pair) -> str:
    return t(f"axis.{pair.axis.why}", a=pair.a, b=pair.b, factor=number(pair.axis.factor))


def coded(kind: str, lines: list[tuple[str, dict]]) -> list[str]:
    """Reasons or caveats in words."""
    return [t(f"{kind}.{code}", **values) for code, values in lines]


def fact(name: str, held: float | int | None, currency: str = "") -> str:
    """One fact of the table."""
    if held is None:
        return "–"
    if name in ("mask_ratio", "probes"):
        return f"{held:.1%}"
    if name == "cost":
        return f"{held:.2f} {currency}".rstrip()
    if name in ("steps", "tokens", "resumes", "alerts"):
        return f"{held:,}"
    return number(held)
