"""The shape of a whole loss curve: flat, plateau, jitter, diverged, drifting up after it was memorised."""

import math
from statistics import median

from .finding import Finding
from .loss_blocks import Block, LossBlocks
from .numbers import as_number, plain

_LIMITS = "It knows the training loss alone: what the model answers is not in it."
_FLAT_CHECKS = (
    "Check in this order: learning rate and warm-up, lora_target and the number of trainable parameters, "
    "frozen embeddings with new tokens, the labels (`llamafactory-obs mask`)"
)


class LossShapeDetector:
    """Looks at all rows so far, whenever there are a quarter more of them than at the last look, and at the end.

    The rows are kept as blocks of ln(loss), see LossBlocks. With s the noise of one row and e the standard error of the
    difference of two tenths of the curve (never under 0.5 %):
      diverged  the last tenth is above the first by ln 1.2 and 6 e; or above the lowest tenth by ln 1.4, 6 e, 0.1
                nats and half of what had been learnt
      flat      from the end of the warm-up on (at least `rows` rows and `steps` steps): first and last tenth differ by
                less than 1 % + 2 e, so do the extremes by less than 3 % + 4 s of a block, and a fall of 5 % would show.
                Ten times as many rows where the run was resumed: it may have learnt before
      plateau   it fell by 10 % or more, and the last half is as flat as that. A warning only where the last three
                quarters are, a tenth of the steps and the rate are still to come, and it fell by less than a quarter
      jitter    s >= 0.2 (0.15 where a row is a mean of 10 steps or more), at least 0.1 nats and a tenth of the loss at
                the start: below that it is the noise of something that is nearly learnt
      overfit_suspect  it fell under a fifth of its start, and the last sixth is above its lowest sixth by ln 1.6 and
      5 e
    Where each figure comes from is in docs/diagnose.md. A shape that ends gives the info "<name>_over".

    Args:
        logging_steps: optimizer steps per row.
        max_steps: what the run was going to do, for `plateau`.
        rows, steps: the least that is called flat.
    """

    def __init__(
        self, *, logging_steps: int = 1, max_steps: int | None = None, rows: int = 20, steps: int = 50
    ) -> None:
        if logging_steps < 1 or rows < 10 or steps < 1:
            raise ValueError("logging_steps and steps must be at least 1, rows at least 10")
        self.logging_steps, self.max_steps, self.rows, self.steps = logging_steps, max_steps, rows, steps
        self.jitter = 0.2 if logging_steps < 10 else 0.15
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self.store = LossBlocks()
        self.resumed = False  # a part of a run that has learnt before may well be flat
        self._next = 24
        self._open: dict[str, int] = {}

    def update(
        self, step: int, loss: float | None, epoch: float | None = None, rate: float | None = None
    ) -> list[Finding]:
        """Takes one logged row; epoch and learning rate where they are logged."""
        loss = as_number(loss)
        if loss is None or not math.isfinite(loss) or loss <= 0:
            return []
        self.store.push(step, loss, _or_nan(epoch), _or_nan(rate))
        if self.store.rows < self._next:
            return []
        self._next = self.store.rows + max(8, self.store.rows // 4)
        return self.look(step)

    def finish(self, step: int) -> list[Finding]:
        """The log ends here."""
        return self.look(step) if self.store.rows >= 12 else []

    def look(self, step: int) -> list[Finding]:
        """What the curve looks like now; what is new of it, and what is over."""
        blocks = self.store.all()
        seen = {}
        for judge in (self._diverged, self._flat, self._plateau, self._jitter, self._drift):
            if (finding := judge(step, blocks)) is not None:
                seen[finding.name] = finding
        if "diverged" in seen or "flat" in seen:
            seen.pop("plateau", None)
        found = []
        for name, finding in seen.items():
            if name not in self._open:
                self._open[name] = finding.evidence["since"]
            found.append(finding)  # told again with the newest numbers; the caller says what has been said
        for name in [name for name in self._open if name not in seen]:
            since = self._open.pop(name)
            evidence = {"since": since} | ({"view": "whole curve"} if name == "diverged" else {})
            text = f"The shape {name.replace('_', ' ')} that began at step {since} is over at step {step}."
            found.append(Finding(f"{name}_over", "info", step, text, evidence, "keep", {}, _LIMITS, step))
        return found

    def _error(self, blocks: list[Block], rows: float) -> float:
        """Standard error of the difference of two means over `rows` rows."""
        return max(median(b.noise for b in blocks[1:]) * math.sqrt(2 / max(1.0, rows)), 0.005)

    def _diverged(self, step: int, blocks: list[Block]) -> Finding | None:
        tenth = max(2, len(blocks) // 10)
        first, last = _mean(blocks[:tenth]), _mean(blocks[-tenth:])
        error = self._error(blocks, tenth * self.store.size)
        levels = [b.level for b in blocks]
        lowest = min(range(tenth - 1, len(blocks)), key=lambda i: sum(levels[i - tenth + 1 : i + 1]))
        low = _mean(blocks[lowest - tenth + 1 : lowest + 1])
        worse = last - first >= max(math.log(1.2), 6 * error)
        lost = math.exp(last) - math.exp(low) >= max(0.1, 0.5 * (math.exp(first) - math.exp(low)))
        lost = lost and last - low >= max(math.log(1.4), 6 * error, 3 * _waves(levels))
        bar = first if worse else math.log(math.exp(low) + 0.4 * max(0.0, math.exp(first) - math.exp(low)))
        lasting = sorted(levels[-tenth:])[tenth // 4] > bar and levels[-1] > bar
        if not (worse or lost) or not lasting:
            return None
        since = blocks[min(lowest + 1, len(blocks) - 1)].first
        text = (
            f"The loss is {math.exp(last):.4g} at step {step}: it began with {math.exp(first):.4g}, was down to "
            f"{math.exp(low):.4g} and rises since about step {since}. What had been learnt is being lost. Stop it, go "
            "back to the last checkpoint before that step (or start anew), halve the rate."
        )
        evidence = {"since": since, "start": plain(math.exp(first)), "end": plain(math.exp(last))}
        evidence |= {"lowest": plain(math.exp(low)), "noise": plain(error, 3), "view": "whole curve"}
        return Finding("diverged", "error", step, text, evidence, "kill", {}, _LIMITS, None, 0.9)

    def _is_flat(self, blocks: list[Block]) -> dict | None:
        if len(blocks) < 10:
            return None
        tenth = max(3, len(blocks) // 10)
        rows = sum(b.rows for b in blocks[:tenth])
        error = self._error(blocks, rows)
        first, last = _mean(blocks[:tenth]), _mean(blocks[-tenth:])
        levels = sorted(b.level for b in blocks)
        spread = levels[int(0.9 * len(levels))] - levels[int(0.1 * len(levels))]
        block_noise = median(b.noise for b in blocks) / math.sqrt(self.store.size)
        if abs(first - last) > 0.01 + 2 * error or spread > 0.03 + 4 * block_noise or error > 0.025:
            return None
        return {"from": plain(math.exp(first)), "to": plain(math.exp(last)), "error": plain(error, 3)}

    def _flat(self, step: int, blocks: list[Block]) -> Finding | None:
        judged = _after_warm_up(blocks)
        rows = sum(b.rows for b in judged)
        if rows < (10 * self.rows if self.resumed else self.rows) or judged[-1].last - judged[0].first < self.steps:
            return None
        fit = self._is_flat(judged)
        if fit is None or math.exp(_mean(blocks)) < 0.3:
            return None  # a loss that is low from the start has been learnt before
        tenth = max(2, len(blocks) // 10)
        noise, head = median(b.noise for b in blocks[1:]), self.store.head
        began = [
            sum(head[:k]) / k - 2.5 * noise / math.sqrt(k) for k in range(1, len(head) + 1)
        ]  # 2.5 errors of a mean
        if max(_mean(blocks[:tenth]), *began) - _mean(blocks[-tenth:]) > 0.03:
            return None  # it fell at the start, if only in its first rows: that is a plateau
        since = judged[0].first
        text = (
            f"The loss does not fall: {fit['from']:.4g} to {fit['to']:.4g} from step {since} to {step} ({rows} rows). "
            f"Stop it. {_FLAT_CHECKS}."
        )
        return Finding(
            "flat", "error", step, text, {"since": since, "rows": rows} | fit, "kill", {}, _LIMITS, None, 0.8
        )

    def _plateau(self, step: int, blocks: list[Block]) -> Finding | None:
        if len(blocks) < 24:
            return None
        for share in (0.75, 0.5):
            late = blocks[-int(share * len(blocks)) :]
            if (fit := self._is_flat(late)) is not None:
                break
        else:
            return None
        if _mean(blocks[: max(2, len(blocks) // 20)]) - _mean(late) < 0.1:
            return None
        since, left = late[0].first, None if self.max_steps is None else 1 - step / self.max_steps
        fall = max(_mean(blocks[: max(2, len(blocks) // 20)]), median(self.store.head)) - _mean(late)
        falls_off = _peak(late[len(late) // 2 :]) < 0.3 * _peak(blocks)
        goes_on = share == 0.75 and left is not None and left > 0.1 and fall < math.log(4 / 3) and not falls_off
        text = (
            f"The loss stands at {fit['to']:.4g} since about step {since} (noise {fit['error']:.2g} of it). What is "
            "there is usable; going on brings little. "
        )
        text += "End it at the next checkpoint, or " if goes_on else "Next time end it earlier, or "
        text += "compare the checkpoints with probes before more epochs are paid for."
        evidence = {"since": since, "planned_left": plain(left, 3)} | fit
        return Finding("plateau", "warn" if goes_on else "info", step, text, evidence, "keep", {}, _LIMITS, None, 0.7)

    def _jitter(self, step: int, blocks: list[Block]) -> Finding | None:
        if self.store.rows < 20:
            return None
        late = blocks[len(blocks) // 5 :]
        noise, level = median(b.noise for b in late), math.exp(median(b.level for b in late))
        start = math.exp(_mean(blocks[: max(2, len(blocks) // 20)]))
        sigma = median(b.sigma for b in late)
        if noise < self.jitter or sigma < 0.1 * start or sigma < 0.1:
            return None
        tenth = max(2, len(blocks) // 10)
        fall = _mean(blocks[:tenth]) - _mean(blocks[-tenth:])
        falls = fall > 2 * self._error(blocks, tenth * self.store.size)
        text = (
            f"The loss jumps by {noise:.0%} from row to row (about {sigma:.2g} around {level:.3g}) "
            + ("and still falls: keep it. " if falls else "and no trend is visible in it. ")
            + "Next time raise gradient_accumulation_steps (or the batch size), then the trend can be seen."
        )
        evidence = {"since": blocks[0].first, "noise": plain(noise, 3), "sigma": plain(sigma, 3)}
        evidence |= {"level": plain(level), "falls": falls, "fall": plain(fall, 3)}
        return Finding("jitter", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.7)

    def _drift(self, step: int, blocks: list[Block]) -> Finding | None:
        if len(blocks) < 20:
            return None
        part = max(5, len(blocks) // 6)
        start, last = _mean(blocks[:2]), median(b.level for b in blocks[-part:])
        means = [median(b.level for b in blocks[i : i + part]) for i in range(len(blocks) - 2 * part + 1)]
        lowest = min(range(len(means)), key=means.__getitem__)
        low = means[lowest]
        error = self._error(blocks[len(blocks) // 2 :], part * self.store.size)
        if start - low < math.log(5) or last - low < max(math.log(1.6), 5 * error):
            return None
        since = blocks[lowest + part].first
        text = (
            f"The data are memorised (loss {math.exp(low):.3g} near step {since}, {math.exp(start):.3g} at first), and "
            f"since then the loss drifts up to {math.exp(last):.3g}. There is no evaluation that could prove "
            f"over-fitting: take the checkpoint before step {since}, and set eval_steps and fewer epochs next time."
        )
        evidence = {"since": since, "start": plain(math.exp(start)), "lowest": plain(math.exp(low))}
        evidence |= {"end": plain(math.exp(last)), "error": plain(error, 3)}
        return Finding("overfit_suspect", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.6)


def _or_nan(value: float | None) -> float:
    value = as_number(value)
    return math.nan if value is None else value


def _mean(blocks: list[Block]) -> float:
    return sum(b.total for b in blocks) / sum(b.rows for b in blocks)


def _waves(levels: list[float]) -> float:
    """Standard deviation of the levels around the median of nine: noise whose neighbours are alike is in it too."""
    around = [level - median(levels[max(0, i - 4) : i + 5]) for i, level in enumerate(levels)]
    return 1.4826 * median(abs(v) for v in around)


def _peak(blocks: list[Block]) -> float:
    """The highest learning rate; infinite where none is logged (it is not known to fall off)."""
    return max((b.rate for b in blocks if not math.isnan(b.rate)), default=math.inf)


def _after_warm_up(blocks: list[Block]) -> list[Block]:
    """The blocks from the one on whose learning rate is half the highest; all of them where none is logged."""
    peak = max((b.rate for b in blocks if not math.isnan(b.rate)), default=math.nan)
    if math.isnan(peak) or peak <= 0:
        return blocks
    start = next(i for i, b in enumerate(blocks) if not math.isnan(b.rate) and b.rate >= 0.5 * peak)
    return blocks[start:]
