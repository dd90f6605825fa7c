"""Reinforcement learning (PPO, GRPO and the like) by its own numbers; its loss says nothing of how it goes."""

import math
from collections import deque
from statistics import median

from .finding import Finding
from .numbers import as_number, plain

_LIMITS = "Rewards and KL are noisy, and what a reward is worth depends on how it is made: look at the answers."


class KlJumpDetector:
    """Finds rows whose KL to the reference is `ratio` times the median of the last 64 and above `floor` nats.

    Rows within `apart` rows of the last one are the same event. Told up to `most` times.
    """

    def __init__(self, *, ratio: float = 10.0, floor: float = 1.0, apart: int = 10, most: int = 5) -> None:
        if ratio <= 1 or floor < 0 or apart < 1 or most < 1:
            raise ValueError("wanted ratio > 1, floor >= 0, apart and most at least 1")
        self.ratio, self.floor, self.apart, self.most = ratio, floor, apart, most
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._past: deque[float] = deque(maxlen=64)
        self._quiet, self._told = self.apart, 0

    def update(self, step: int, kl: float | None) -> Finding | None:
        """Takes the KL of one logged row."""
        kl = as_number(kl)
        if kl is None or not math.isfinite(kl):
            return None
        usual = median(self._past) if len(self._past) >= 8 else None
        self._past.append(kl)
        self._quiet += 1
        if usual is None or kl < self.floor or kl < self.ratio * max(usual, 0.0):
            return None
        quiet, self._quiet = self._quiet, 0
        if quiet <= self.apart or self._told >= self.most:
            return None
        self._told += 1
        text = (
            f"The KL to the reference is {kl:.3g} at step {step} (usual {usual:.3g}). Look at the answers of it; "
            "if it comes again, lower the rate or raise the KL coefficient."
        )
        evidence = {"since": step, "kl": plain(kl), "usual": plain(usual)}
        return Finding("kl_jump", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.8)


class RewardCollapseDetector:
    """Finds a reward that has lost what it had gained, or whose groups no longer differ.

    First, best and last are medians of `window` rows. Lost is half of what was gained since the first, at least a
    quarter of the best (a reward that only fell); the fall must be more than 4 times the noise of a median.
    `reward_std` near 0 (under a hundredth of its first median, or 0 from the first row on) over a whole window gives no
    advantage, so nothing is learnt; "no_advantage_over" closes it.
    """

    def __init__(self, *, window: int = 16) -> None:
        if window < 4:
            raise ValueError("window must be at least 4")
        self.window = window
        self.restart()

    def restart(self) -> None:
        """Forgets all: another run begins."""
        self._rewards: deque[float] = deque(maxlen=self.window)
        self._spreads: deque[float] = deque(maxlen=self.window)
        self._count = 0
        self._best: tuple[float, int] | None = None
        self._start, self._first_spread, self._since = None, None, 0
        self._told: set[str] = set()

    def update(self, step: int, reward: float | None, spread: float | None = None) -> Finding | None:
        """Takes the mean reward of one logged row, and its standard deviation within groups."""
        reward, spread = as_number(reward), as_number(spread)
        found = None
        if reward is not None and math.isfinite(reward):
            found = self._reward(step, reward)
        if spread is not None and math.isfinite(spread):
            found = found or self._spread(step, spread)
        return found

    def _reward(self, step: int, reward: float) -> Finding | None:
        self._rewards.append(reward)
        self._count += 1
        if len(self._rewards) < self.window or self._count % (self.window // 4):
            return None
        now = median(self._rewards)
        noise = 1.4826 * median(abs(v - now) for v in self._rewards) * 1.25 / math.sqrt(self.window)
        self._start = now if self._start is None else self._start
        if self._best is None or now > self._best[0]:
            self._best = (now, step)
            return None
        best, at = self._best
        least = max(0.5 * (best - self._start), 0.25 * abs(best), 4 * noise)
        if "reward" in self._told or best - now <= least:
            return None
        self._told.add("reward")
        text = (
            f"The reward has fallen from {best:.3g} (step {at}) to {now:.3g} at step {step}. Take the checkpoint "
            f"before step {at}, and lower the rate or raise the KL coefficient."
        )
        evidence = {"since": at, "best": plain(best), "now": plain(now), "noise": plain(noise, 3)}
        return Finding("reward_collapse", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.6)

    def _spread(self, step: int, spread: float) -> Finding | None:
        self._spreads.append(spread)
        if len(self._spreads) < self.window:
            return None
        now = median(self._spreads)
        if not self._first_spread:
            self._first_spread = now
        if now > 0.01 * self._first_spread:
            return self._differ(step, now)
        if "spread" in self._told or (self._first_spread == 0 and any(self._spreads)):
            return None
        self._told.add("spread")
        text = (
            f"All answers of a group get the same reward at step {step} and in the {self.window} rows before: there is "
            "nothing to learn from. Check the reward function, and whether the tasks are too easy or too hard."
        )
        self._since = step
        evidence = {"since": step, "reward_std": plain(now), "at_first": plain(self._first_spread)}
        return Finding("no_advantage", "warn", step, text, evidence, "keep", {}, _LIMITS, None, 0.7)

    def _differ(self, step: int, now: float) -> Finding | None:
        if "spread" not in self._told:
            return None
        self._told.discard("spread")
        text = f"The rewards within a group differ again at step {step} (standard deviation {now:.3g})."
        evidence = {"since": self._since, "reward_std": plain(now)}
        return Finding("no_advantage_over", "info", step, text, evidence, "keep", {}, _LIMITS, step, 0.7)
