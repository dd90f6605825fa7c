"""The parts of the screen that are lines of text."""

from rich.cells import cell_len

from ..live import Alert, Probe, Snapshot
from ..texts import text
from .words import LEVELS, clock, clockwork, duration, event_text, status, verdict, where
from .writing import Writing

#: a piece of a line: text and style; a line; a part of the screen
Piece = tuple[str, str]
Line = list[Piece]

_VERDICTS = {"resumes exactly": "exact", "warm start only": "warm", "serves": "serves", "broken": "broken"}
_SHOWN = frozenset(
    {"start", "resume", "continuity", "end", "probe", "control", "diagnosis", "notice", "deleted", "stop"}
)


def head(snapshot: Snapshot, width: int, writing: Writing) -> list[Line]:
    """Two lines: what and where; time and cost, behind a bar."""
    said, style = status(snapshot)
    name = "".join(char for char, _ in writing.cut(snapshot.name, max(8, width // 3)))
    first = [(name, "bold"), ("  ", ""), (said, style)]
    if snapshot.status == "waiting":
        return [first, [(text("watch.head.nothing", path=snapshot.dir), "dim")]]
    if snapshot.step or snapshot.max_steps:
        first += [("  ", ""), (where(snapshot), "")]
    share = min(1.0, snapshot.step / snapshot.max_steps) if snapshot.max_steps else 0.0
    cells = max(8, min(30, width // 6)) - 2
    done = round(share * cells)
    bar = [("[", "dim"), ("#" * done, "green"), ("-" * (cells - done), "dim"), ("]", "dim")]
    return [first, [*bar, (_fitting(clockwork(snapshot), width - cells - 2), "")]]


def machine(snapshot: Snapshot, width: int) -> Line:
    """Memory, load, disk, as the newest row has it; as much as fits, the most important first."""
    now = snapshot.machine
    parts = [_vram(snapshot, now), _gpu(now), _ram(now)]
    if "disk_free_gib" in now:
        parts.append(text("watch.machine.disk", free=_gib(now["disk_free_gib"])))
    wait, step = snapshot.latest.get("time/data_wait_s"), snapshot.latest.get("time/step_s")
    if wait is not None and step:
        parts.append(text("watch.machine.waits", share=wait / step))
    if "host_cpu_percent" in now:
        parts.append(text("watch.machine.cpu", percent=now["host_cpu_percent"]))
    known = _fitting(parts, width - cell_len(text("watch.machine.name")))
    shown = (known, "") if known else (f"  {text('watch.machine.unknown')}", "dim")
    return [(text("watch.machine.name"), "bold"), shown]


def _fitting(parts: list[str], room: int) -> str:
    """The first parts that find room."""
    out = ""
    for part in filter(None, parts):
        if cell_len(out) + cell_len(part) + 2 > room:
            break
        out += f"  {part}"
    return out


def _vram(snapshot: Snapshot, now: dict) -> str:
    used = now.get("device_used_gib", now.get("reserved_gib"))
    if used is None:
        return ""
    size = snapshot.about.get("gpu_memory_gib")
    key = "watch.machine.vram" if size else "watch.machine.vram_alone"
    out = text(key, used=_gib(used), of=_gib(size or 0))
    peak = now.get("peak_reserved_gib")
    return out if peak is None else f"{out} {text('watch.machine.peak', peak=_gib(peak))}"


def _gpu(now: dict) -> str:
    out = []
    if "gpu_util" in now:
        out.append(text("watch.machine.gpu", share=now["gpu_util"]))
    if "gpu_temperature_c" in now:
        out.append(text("watch.machine.heat", degrees=now["gpu_temperature_c"]))
    if "gpu_power_w" in now:
        out.append(text("watch.machine.power", watts=now["gpu_power_w"]))
    return " ".join(out)


def _ram(now: dict) -> str:
    used = now.get("process_ram_gib", now.get("rss_gib"))
    out = [] if used is None else [text("watch.machine.ram", used=_gib(used))]
    if "ram_available_gib" in now:
        out.append(text("watch.machine.free", free=_gib(now["ram_available_gib"])))
    return text("watch.joint").join(out)


def _gib(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def data(snapshot: Snapshot, width: int) -> Line:
    """The mask, and the newest checkpoint; what else fits."""
    mask = snapshot.mask
    line = [(text("watch.data.name"), "bold"), ("  ", "")]
    if snapshot.source == "trainer_log":
        return [*line, (text("watch.head.log_only"), "dim")]
    if "supervised_ratio" in mask:
        line.append((text("watch.data.mask", share=mask["supervised_ratio"]), ""))
    else:
        line.append((text("watch.data.unknown"), "dim"))
    line += [("  ", ""), *_checkpoint(snapshot)]
    shares = [name for name in ("padding", "truncated") if f"{name}_ratio" in mask]
    parts = [text(f"watch.data.{name}", share=mask[f"{name}_ratio"]) for name in shares]
    return [*line, (_fitting(parts, width - sum(cell_len(said) for said, _ in line)), "")]


def _checkpoint(snapshot: Snapshot) -> Line:
    kept = [one for one in snapshot.checkpoints if not one.deleted]
    if not kept:
        return [(text("watch.data.no_checkpoint"), "dim")]
    newest = max(kept, key=lambda one: one.time)
    said = [(text("watch.data.checkpoint", step=newest.step), "")]
    if newest.verdict in _VERDICTS:
        bad = newest.good is False or newest.verdict == "broken"
        style = "bold red" if bad else "green" if newest.good else ""
        said.append((f" ({text(f'watch.data.verdict.{_VERDICTS[newest.verdict]}')})", style))
    return said


def probes(snapshot: Snapshot, most: int) -> list[Line]:
    """The counts, then the outputs: those that broke first, then what is wrong, then what is right."""
    name = (text("watch.probes.name"), "bold")
    asked = snapshot.probes
    if asked is None:
        return [[name, ("  ", ""), (text("watch.probes.none"), "dim")]]
    counts = text("watch.probes.of", checkpoint=asked.checkpoint, passed=asked.passed, of=len(asked.probes))
    first = [name, ("  ", ""), (counts, "green" if asked.passed == len(asked.probes) else "yellow")]
    for change, style in (("broke", "bold red"), ("fixed", "green")):
        names = [probe.name for probe in asked.probes if probe.change == change]
        if names:
            first += [("  ", ""), (text(f"watch.probes.{change}", names=_few(names)), style)]
    order = {"broke": 0, "fixed": 2}
    ranked = sorted(asked.probes, key=lambda probe: order.get(probe.change, 1 if not probe.passed else 3))
    return [first, *(_probe(probe) for probe in ranked[: max(0, most - 1)])]


def _probe(probe: Probe) -> Line:
    said = text("watch.probes.right" if probe.passed else "watch.probes.wrong")
    line = [("  ", ""), (said, "green" if probe.passed else "red"), (f" {_short(probe.name)}", "")]
    if probe.errors:
        line.append((f" [{', '.join(probe.errors[:3])}]", "red"))
    return [*line, ("  ", ""), (" ".join(probe.output.split()), "dim")]


def alerts(snapshot: Snapshot, most: int, width: int, writing: Writing) -> list[Line]:
    """What is open, the gravest first; then what happened lately, the newest first."""
    advice = _advice(snapshot)
    first = [(text("watch.alerts.name"), "bold"), ("  ", "")]
    if advice:
        first.append((advice, "bold red"))
    elif snapshot.alerts:
        first.append((text("watch.alerts.count", count=len(snapshot.alerts)), LEVELS[snapshot.alerts[0].level]))
    else:
        first.append((text("watch.alerts.none"), "dim"))
    room = max(1, most - 1)
    shown = snapshot.alerts[: room if len(snapshot.alerts) <= room else max(1, room - 1)]
    more = len(snapshot.alerts) - len(shown)
    each = max(1, (room - (more > 0)) // max(1, len(shown)))
    lines = [first]
    for one in shown:
        lines += _alert(one, min(3, each), width, writing)
    if more:
        lines.append([("  ", ""), (text("watch.alerts.more", count=more), "yellow")])
    open_now = {id(one.event) for one in snapshot.alerts}
    for event in reversed(snapshot.events):
        if len(lines) >= most:
            break
        if id(event) in open_now or event.state == "repeated" or not (event.level != "info" or event.kind in _SHOWN):
            continue
        at = f"{clock(event.time, snapshot.now)} {event.step:>6}  "
        lines.append([("  ", ""), (at, "dim"), (event_text(event), LEVELS[event.level])])
    return lines[:most]


def _alert(alert: Alert, most: int, width: int, writing: Writing) -> list[Line]:
    """One that is open, in so many lines."""
    since = text("watch.alerts.open", since=alert.since)
    if alert.count > 1:
        since += text("watch.joint") + text("watch.alerts.times", count=alert.count)
    level = text(f"watch.event.level.{alert.level}")
    head = cell_len(level) + cell_len(since) + 5
    said = writing.fold(f"{' ' * head}{event_text(alert.event)}", width, most)
    first = [("  ", ""), (level, LEVELS[alert.level]), (f" {since}  ", "dim"), (said[0][head:], "")]
    return [first, *([("  ", ""), (line, "")] for line in said[1:])]


def _advice(snapshot: Snapshot) -> str:
    """Where something says that the run is to be ended."""
    asks = any(one.event.action == "kill" for one in snapshot.alerts)
    if snapshot.status != "ended":
        return text("watch.alerts.kill") if asks else ""
    said = snapshot.verdict or {}
    if said.get("action") == "kill":
        return text("watch.event.verdict", verdict=verdict(said["verdict"]))
    return ""


def foot(snapshot: Snapshot, paused: bool) -> Line:
    """Keys, and how fresh the news is."""
    line = [(text("watch.foot.paused"), "bold yellow") if paused else (text("watch.foot.keys"), "dim")]
    if snapshot.heard is not None:
        line += [("  ", ""), (text("watch.foot.heard", time=duration(max(0.0, snapshot.now - snapshot.heard))), "dim")]
    return [*line, ("  ", ""), (snapshot.dir, "dim")]


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:21]}..."


def _few(names: list[str], most: int = 3) -> str:
    shown = text("watch.joint").join(_short(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} +{len(names) - most}"
