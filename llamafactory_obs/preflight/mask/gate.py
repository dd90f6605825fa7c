"""Gate 2: run the pipeline, judge it, say why."""

import shlex
from dataclasses import dataclass, field

from ... import texts
from ..result import ERROR, FAIL, SKIPPED, WARN, Check, as_gate
from ..run_config import RunConfig, parsed
from . import confirm
from .causes import check_columns, check_tags, likely_causes, reasons
from .checks import Context, check_numbers
from .collect import collect
from .collected import CannotAlign, Collected, Source
from .observe import CannotEncode
from .parity import check_parity
from .segments import NotUnderstood
from .share import column, numbers
from .worst import Row, worst_rows

#: the checks on the share alone
SHARES = ("share", "eval_share")
#: dropped rows whose content is looked at
_EXPLAINED = 1000


@dataclass
class MaskReport:
    """What the gate found.

    Attributes:
        checks: in the order of their weight.
        splits, datasets: `share.numbers` of each split, and of each data set in it.
        causes: likely ones of a wrong mask.
        confirm: the line that accepts what fails, "" where that cannot be.
        confirmed: the confirmation beside the config holds for this data.
        note: about the confirmation.
        worst: rows to look at, the worst first.
        bound_to: hash of the data, the template and the settings that a confirmation is for.
    """

    checks: list[Check]
    splits: list[dict] = field(default_factory=list)
    datasets: list[dict] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    confirm: str = ""
    confirmed: bool = False
    note: str = ""
    worst: list[Row] = field(default_factory=list)
    bound_to: str = ""

    def gate(self) -> dict:
        """The gate of the contract; `fix` names the likely cause and the line that confirms."""
        gate = as_gate("mask", self.checks)
        if gate["status"] in (FAIL, ERROR):
            parts = [self._first_fix(), *(texts.text("mask.gate.cause", cause=cause) for cause in self.causes)]
            parts.append(texts.text("mask.gate.meant", confirm=self.confirm) if self.confirm else "")
            gate["fix"] = "; ".join(part for part in parts if part)
        return gate

    def _first_fix(self) -> str:
        """Of what is not good: what cannot be confirmed first, and a wrong segment before the share that it makes."""
        bad = [check for check in self.checks if check.status in (FAIL, ERROR) and check.fix]
        bad.sort(key=lambda check: (check.confirmable, check.name in SHARES))
        return bad[0].fix if bad else ""

    def as_dict(self) -> dict:
        """The gate with all numbers, for `mask --json`."""
        return {
            **self.gate(),
            "splits": self.splits,
            "datasets": self.datasets,
            "causes": self.causes,
            "confirm": self.confirm,
            "confirmed": self.confirmed,
            "note": self.note,
            "worst": [row.as_dict() for row in self.worst],
        }


def mask_gate(config: RunConfig, samples: int | None = None, show: int = 5, accept: bool = False) -> MaskReport:
    """Judge the mask of a run config.

    Args:
        config: see `run_config.read_run_config`.
        samples: at most so many rows per split; None takes all.
        show: how many of the worst rows to hold ready as text.
        accept: confirm what fails and may be confirmed (`--confirm`), and write it beside the config.

    Raises:
        ConfigError: the config, the tokenizer or a data set cannot be read.
    """
    with parsed(config) as arguments:
        try:
            with collect(arguments, samples) as collected:
                return _judge(config, collected, samples, show, accept)
        except CannotAlign as error:
            return _not_aligned(error, arguments)
        except CannotEncode as error:
            names = [*(arguments.data.dataset or []), *(arguments.data.eval_dataset or [])]
            text = texts.text("mask.gate.raises", row=error.row, data_set=names[error.dataset], why=error.why)
            return MaskReport([Check("rows_encode", FAIL, error.row, None, text, texts.text("mask.gate.repair"))])
        except NotUnderstood as error:
            text = texts.text("mask.gate.not_judged", error=error)
            return MaskReport([Check("rows_encode", ERROR, None, None, text)])


def _judge(config: RunConfig, collected: Collected, samples: int | None, show: int, accept: bool) -> MaskReport:
    skipped = [split for split in collected.splits if split.skipped]
    counted = [split for split in collected.splits if not split.skipped]
    if not counted:
        why = "; ".join(dict.fromkeys(split.skipped for split in skipped)) or texts.text("mask.gate.no_data_set")
        return MaskReport([Check("share", SKIPPED if skipped else ERROR, None, None, why)])
    splits = [numbers(split.name, None, split.figures) for split in counted]
    datasets = [one for split in counted for one in _per_dataset(collected, split)]
    bound_to = confirm.bound_to(collected, samples)
    given, note = _confirmation(config, bound_to)
    context = _context(config, collected, given)
    checks = check_numbers(splits, datasets, context)
    if context.stage == "sft":
        entries = [(s.name, vars(s.attributes)) for s in collected.sources if s.attributes is not None]
        checks.append(check_tags(entries))
        data, model = collected.arguments.data, collected.arguments.model
        tools = any(one.get("tools") for _, one in entries)
        checks += check_parity(collected.tokenizer, collected.original, data, model.model_name_or_path, tools)
    checks += [Check(f"{split.name}_share", SKIPPED, None, None, split.skipped) for split in skipped]
    report = MaskReport(_accepted(checks, given), splits, datasets, note=note, confirmed=given is not None)
    report.bound_to = bound_to
    _offer(report, config, accept)
    report.causes = likely_causes(splits, datasets, report.checks, context)
    report.worst = worst_rows(collected, show) if show else []
    return report


def _per_dataset(collected: Collected, split) -> list[dict]:
    found = []
    for number, source in enumerate(collected.sources):
        here = split.dataset == number
        if not here.any():
            continue
        one = numbers(split.name, source.name, split.figures[here])
        if one["dropped"]:
            rows = split.row[here & (column(split.figures, "dropped") == 1)][:_EXPLAINED]
            one["drop_reasons"] = reasons([source.raw(int(row)) for row in rows], vars(source.attributes))
        found.append(one)
    return found


def _context(config: RunConfig, collected: Collected, given: confirm.Confirmation | None) -> Context:
    data = collected.arguments.data
    low, high = (given.low, given.high) if given else config.settings.mask_range or (0.2, 0.4)
    return Context(
        stage=collected.arguments.finetuning.stage,
        low=low,
        high=high,
        train_on_prompt=data.train_on_prompt,
        mask_history=data.mask_history,
        cutoff_len=data.cutoff_len,
        pads_in_loss=not data.ignore_pad_token_for_loss,
        vocabulary=collected.vocabulary,
        tokenized=collected.tokenized,
        template=data.template,
    )


def _confirmation(config: RunConfig, bound_to: str) -> tuple[confirm.Confirmation | None, str]:
    """What was confirmed for this very data; a word on one that was for another."""
    given = confirm.read(config.path)
    if given is None:
        return None, ""
    if given.bound_to != bound_to:
        return None, texts.text("mask.gate.other")
    return given, texts.text("mask.gate.confirmed_in", file=confirm.place(config.path).name)


def _accepted(checks: list[Check], given: confirm.Confirmation | None) -> list[Check]:
    """Failures that a person has accepted become warnings."""
    names = given.accepted if given else ()
    return [
        Check(c.name, WARN, c.value, c.want, texts.text("mask.gate.confirmed", said=c.detail))
        if _may(c) and c.name in names
        else c
        for c in checks
    ]


def _may(check: Check) -> bool:
    return check.status == FAIL and check.confirmable


def _offer(report: MaskReport, config: RunConfig, accept: bool) -> None:
    """Confirm, or say how it is done; nothing where a failure cannot be confirmed away."""
    open_ = [check for check in report.checks if check.status in (FAIL, ERROR)]
    firm = [check.name for check in open_ if not _may(check)]
    if firm and accept:
        report.note = texts.text("mask.gate.not_confirmed", names=", ".join(firm))
        return
    if firm or not open_:
        return
    shares = [one["share"] for one in report.splits if one["share"] is not None]
    if not accept:
        report.confirm = shlex.join(["llamafactory-obs", "preflight", *config.words, "--confirm", "mask"])
        return
    low, high = confirm.around(min(shares))[0], confirm.around(max(shares))[1]
    names = tuple(check.name for check in open_ if check.name not in SHARES)
    given = confirm.Confirmation(report.bound_to, low, high, names)
    path = confirm.write(config.path, given, report.splits[0]["share"])
    report.confirmed, report.note = True, texts.text("mask.gate.confirmed_share", low=low, high=high, file=path.name)
    report.checks = _accepted(
        [_in_range(check, low, high) if check.name in SHARES else check for check in report.checks],
        given,
    )


def _in_range(check: Check, low: float, high: float) -> Check:
    return Check(check.name, "pass", check.value, [low, high], check.detail) if _may(check) else check


def _not_aligned(error: CannotAlign, arguments) -> MaskReport:
    source: Source = error.source
    try:
        row = source.first()
    except Exception:  # the source itself cannot be read
        row = {}
    local = arguments.data.streaming and source.attributes.load_from == "file"
    check = check_columns(source.name, row, vars(source.attributes), error.why, local)
    return MaskReport([check], causes=["wrong tags (role and content keys) or columns"] if row else [])
