"""The learning rate of each parameter group at each update, and what is said about its course."""

import torch

from ..detect import Finding, LrScheduleDetector


class LearningRates:
    """Follows the rates of all groups; group 0's are also in the record (`train/lr`), so that a resume restores them.

    Args:
        run: the Recorder.
        name: the callback in whose name events are written.
    """

    def __init__(self, run, name: str):
        self._run, self._name = run, name
        self._detectors: list[LrScheduleDetector] = []
        self._begins = True
        self._scale = 1.0

    def read(self) -> None:
        """Right after an update: the rate of each group, and the one that the scheduler has set for it."""
        rates = [group.get("lr") for group in self._run.trainer.optimizer.param_groups]
        planned = self._planned(len(rates))
        on_device = [n for n in [*rates, *planned] if isinstance(n, torch.Tensor) and n.device.type != "cpu"]
        if not on_device:
            self._run.open_row.facts["rates"] = ([_float(n) for n in rates], [_float(n) for n in planned])
            return
        place = {id(number): i for i, number in enumerate(on_device)}

        def finish(row, values: list[float]) -> None:
            both = [values[place[id(n)]] if id(n) in place else _float(n) for n in [*rates, *planned]]
            row.facts["rates"] = (both[: len(rates)], both[len(rates) :])

        self._run.defer([torch.stack([number.detach().float().reshape(()) for number in on_device])], finish)

    def _planned(self, count: int) -> list:
        try:
            planned = list(self._run.trainer.lr_scheduler.get_last_lr())
        except Exception:  # one that has made no step yet, keeps no rates, or is no scheduler of torch
            planned = []
        return planned if len(planned) == count else [None] * count

    def follow(self, row) -> None:
        """Judge a finished row. Group 0 decides what is said; another group is named where it takes another course."""
        rates, planned = row.facts.get("rates", ([row.values.get("train/lr")], [None]))
        begins, skipped = self._begins and not self._run.replaying, row.values.get("train/step_skipped") == 1
        self._begins = self._begins and not begins
        scale = row.values.get("train/lr_scale", 1.0)
        if scale != self._scale:  # `control` did it, and has said so
            for detector in self._detectors:
                detector.rescale(scale / self._scale)
            self._scale = scale
        said = {"first rate"}
        for number, (rate, plan) in enumerate(zip(rates, planned, strict=True)):
            if number == len(self._detectors):
                self._detectors.append(LrScheduleDetector())
            finding = self._detectors[number].update(row.step, rate, planned=plan, skipped=skipped, begins=begins)
            if finding is not None and not (number and finding.name in said):
                said.add(finding.name)
                self._say(finding, number, rates)

    def _say(self, finding: Finding, number: int, rates: list) -> None:
        """Each change is an `lr_change`; one that nobody has planned is an alert as well."""
        text = finding.text if number == 0 else f"Parameter group {number}: {finding.text}"
        evidence = finding.evidence | {"group": number, "rates": rates[:64], "limits": finding.limits}
        about = {"step": finding.step, "evidence": evidence}
        unplanned = finding.level != "info"
        self._run.event("lr_change", self._name, finding.name, text, show=not unplanned, **about)
        if unplanned:
            self._run.event("alert", self._name, finding.name, text, level=finding.level, **about)


def _float(number) -> float | None:
    return None if number is None else float(number)
