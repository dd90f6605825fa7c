"""How the run went: starts, time, cost, speed, memory, what was in the batches."""

from collections import Counter

from ..summary import Session, Spread
from .sheet import Writer, joined
from .values import duration, ended, moment, num, t, zone

#: starts that are listed one by one on the sheet; the tables have all
MOST_STARTS = 6


def course(writer: Writer) -> None:
    """Steps, time, starts and how each ended, machine hours, cost."""
    run = writer.summary
    last = run.sessions[-1] if run.sessions else None
    writer.add("state", ended(last) if last else None, "sessions")
    steps = f"{run.steps:,}"
    done = t("value.steps", steps=steps, planned=f"{run.planned_steps:,}") if run.planned_steps else None
    epoch = None if run.epoch is None else t("value.epoch", epoch=run.epoch)
    writer.add("steps", joined([done or t("value.steps_only", steps=steps), epoch]))
    if run.started is not None and run.ended is not None:
        start, end = (moment(one, writer.utc) for one in (run.started, run.ended))
        writer.add("time", t("value.time", start=start, end=end, zone=zone(run.ended, writer.utc)))
    time_ = None
    if run.train_s is not None and run.wall_s is not None:
        load = sum(one.load_s or 0.0 for one in run.sessions)
        after = sum(one.after_s for one in run.sessions)
        parts = [t("value.trained", time=duration(run.train_s))]
        parts += [t("value.loaded", time=duration(load))] if load else []
        parts += [t("value.after", time=duration(after))] if after >= 1 else []
        time_ = parts[0] if len(parts) == 1 else t("value.duration", wall=duration(run.wall_s), parts=joined(parts))
    writer.add("duration", time_, "wall_s")
    if "sessions.load_s" in run.missing and time_:
        writer.add("load", None, "sessions.load_s")
    _starts(writer, run.sessions)
    if run.repeated_steps:
        made = run.steps + run.repeated_steps
        writer.add("repeated", t("value.repeated", steps=f"{run.repeated_steps:,}", share=run.repeated_steps / made))
    hours = None if run.machine_hours is None else t("value.hours", hours=f"{run.machine_hours:.3g}")
    writer.add("hours", hours, "machine_hours")
    if run.cost is not None:
        money = [f"{amount:,.2f} {run.price.currency}".strip() for amount in (run.cost, run.price.per_hour)]
        writer.add("cost", t("value.cost", cost=money[0], price=money[1], source=run.price.source))
    else:
        writer.add("cost", None, "machine_hours" if run.machine_hours is None else "cost")
    if run.earlier_runs:
        writer.add("earlier", str(run.earlier_runs))


def _starts(writer: Writer, sessions: list[Session]) -> None:
    if len(sessions) == 1:
        writer.add("starts", t("value.starts_one"))
    elif sessions:
        counts = Counter(one.ended for one in sessions)
        parts = [t("value.start_part", count=n, ended=t(f"ended.{word}")) for word, n in counts.items()]
        writer.add("starts", t("value.starts", count=len(sessions), parts=joined(parts)))
        if len(sessions) <= MOST_STARTS:
            for one in sessions:
                writer.add("start", start_line(one), label=t("label.start", number=one.segment))


def start_line(one: Session) -> str:
    """One start in a line."""
    values = {"train": duration(one.train_s), "ended": ended(one)}
    if one.first_step is None:
        line = t("value.start_none", **values)
    else:
        line = t("value.start", first=one.first_step, last=one.last_step, **values)
    return line if one.pause_s is None else line + t("value.pause", pause=duration(one.pause_s))


def speed(writer: Writer) -> None:
    """Seconds per step, tokens per second, tokens."""
    run = writer.summary
    writer.add("step_s", spread(run.step_s), "step_s")
    rates, mean = run.tokens_per_s, run.mean_tokens_per_s
    if rates is not None and mean is not None:
        values = {name: num(round(getattr(rates, name), 1)) for name in ("median", "p5", "p95")}
        writer.add("tokens_per_s", t("value.tokens_per_s", mean=num(round(mean, 1)), **values))
    elif mean is not None:
        writer.add("tokens_per_s", t("value.tokens_per_s_only", mean=num(round(mean, 1))))
    else:
        writer.add("tokens_per_s", spread(rates), "mean_tokens_per_s")
    data, tokens = run.data, None
    if data.tokens is not None:
        tokens = f"{data.tokens:,}"
        if data.supervised_tokens is not None:
            tokens = t("value.tokens", tokens=tokens, supervised=f"{data.supervised_tokens:,}")
        if data.tokens_all is not None and data.tokens_all > data.tokens:
            tokens += t("value.tokens_again", all=f"{data.tokens_all:,}")
    writer.add("tokens", tokens, "data.tokens")


def spread(one: Spread | None) -> str | None:
    """Mean, median and both percentiles in a line."""
    if one is None:
        return None
    return t("value.spread", **{name: num(getattr(one, name)) for name in ("mean", "median", "p5", "p95")})


def resources(writer: Writer) -> None:
    """VRAM against its limit, utilisation."""
    run, memory = writer.summary, writer.summary.memory
    vram = None
    if memory.reserved_gib is not None:
        values = {"reserved": num(memory.reserved_gib), "allocated": num(memory.allocated_gib)}
        if memory.share is None:
            vram = t("value.vram_only", **values)
        else:
            vram = t("value.vram", limit=num(memory.limit_gib), share=memory.share, **values)
            if memory.limit_from:
                vram += t("value.limit_from", source=memory.limit_from)
        if memory.device_gib is not None:
            vram += t("value.device", gib=num(memory.device_gib))
    writer.add("vram", vram, "memory.reserved_gib")
    if memory.rss_gib is not None and memory.reserved_gib is None:
        writer.add("rss", t("value.gib", gib=num(memory.rss_gib)))
    use = None
    if run.gpu_util is not None:
        use = t("value.gpu_util", mean=run.gpu_util, low=run.gpu_util_low)
    writer.add("gpu_util", use, "gpu_util")


def data(writer: Writer) -> None:
    """Mask ratio, padding, truncation."""
    one, ratio = writer.summary.data, None
    if one.supervised_ratio is not None:
        ratio = t("value.mask_ratio", ratio=one.supervised_ratio)
        if one.wanted_ratio is not None:
            low, high = one.wanted_ratio
            word = "value.inside" if low <= one.supervised_ratio <= high else "value.outside"
            ratio += t(word, low=low, high=high)
    writer.add("mask_ratio", ratio, "data.supervised_ratio")
    padding = None if one.padding_ratio is None else t("value.padding", ratio=one.padding_ratio)
    writer.add("padding", padding, "data.padding_ratio")
    cut = None if one.truncated_ratio is None else t("value.truncated", ratio=one.truncated_ratio)
    writer.add("truncated", cut, "data.truncated_ratio")
    writer.add("masked", None if one.fully_masked is None else f"{one.fully_masked:,}")
