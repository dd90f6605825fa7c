"""`replay`: one step's batch and ordinary ones beside it, on the same weights."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..preflight.rehearsal.derive import NO_EVALUATION, without
from ..preflight.run_config import parsed
from . import carriers, ordinary, weights
from .collator import collator_of
from .log import SampleLog, read_log
from .passes import Passed, Passes
from .rebuilt import Batch, rebuild
from .recorded_run import RecordedRun, causes_of_change, recorded_run
from .report import DATA, Figures, Report
from .show import shown
from .training_set import TrainingSet, training_set
from .verdict import decide

#: stages whose loss is a mean over label tokens
_RUN = ("sft", "pt")
#: so many times the wanted number of steps are tried for ordinary batches
_TRIED = 4
#: carriers whose text is shown without being asked for
_SHOWN = 3


def replay(
    output_dir: Path,
    step: int,
    *,
    checkpoint: str | None = None,
    rank: int | None = None,
    beside: int = 8,
    device: str = "auto",
    overrides: tuple[str, ...] = (),
    show_all: bool = False,
    say: Callable[[str], None],
) -> Report:
    """Rebuild a step's batch from the audit log and run it beside ordinary ones.

    Args:
        checkpoint: what it is run on, see `weights.choose`; None takes the newest complete one before the step.
        rank: only the part of this rank.
        beside: how many ordinary batches.
        overrides: `key=value` over the run's config, for what moved.
        show_all: the text of all samples, not only of those that carry it.
        say: takes a line of progress.

    Raises:
        ConfigError: there is no such record, log, step, checkpoint, data or model.
    """
    run = recorded_run(output_dir, overrides)
    log = read_log(output_dir, step, rank)
    chosen = weights.choose(output_dir, step, checkpoint)
    evaluation = [key for key in NO_EVALUATION if key != "val_size"]
    config = replace(run.config, given=without(run.config.given, evaluation))
    with parsed(config) as arguments:
        say("replay: the training set is being read, as the run read it")
        with training_set(arguments) as data:
            return _replay(run, log, step, chosen, beside, device, show_all, data, say)


def _replay(run, log, step, chosen, beside, device, show_all, data: TrainingSet, say) -> Report:
    collator = collator_of(data)
    batch = rebuild(log.near[step], data, collator)
    others = _ordinary(log, batch, beside, data, collator)
    report = Report(step, data.stage, batch, _figures(batch, None, run))
    if any(not sample.same for one in (batch, *others) for sample in one.samples):
        report.changes = causes_of_change(run, data.arguments.data, data.template_sha256)
    why_not = _why_not(data.stage)
    runs = not why_not and len(others) >= ordinary.FEWEST and any(sample.runs for sample in batch.samples)
    passed: dict[int, Passed] = {}
    if runs:
        report.weights = chosen
        say(f"replay: {len(others) + 1} batches forward and backward on {chosen.name}")
        loaded = weights.load(chosen, data, run.config.given, device)
        passes = Passes(loaded, data, collator_of(data, loaded.model))
        report.setting = _setting(loaded, passes)
        passed = {one.step: passes.run(one) for one in (*others, batch)}  # the batch last: its gradient is needed
        report.limits += loaded.notes
    report.figures = _figures(batch, passed.get(step), run)
    report.ordinary = [_figures(one, passed.get(one.step), run) for one in others]
    _compare(report)
    if runs:
        report.carriers = carriers.parts_of(batch, passed[step], [(one, passed[one.step]) for one in others])
        report.compared_samples = sum(len(its.sums) for its in passed.values())
        out = [report.compared[name].out for name in ("loss", "grad_norm", "altered_ratio") if name in report.compared]
        if any(out):
            altered = "altered_ratio" in report.compared and report.compared["altered_ratio"].out
            carriers.leave_out(report.carriers, passed[step], passes, altered)
    decide(report, runs, why_not)
    report.limits += _limits(run, log, report, data)
    report.texts = [shown(sample, data.tokenizer) for sample in _to_show(report, show_all)]
    return report


def _ordinary(log: SampleLog, batch: Batch, count: int, data: TrainingSet, collator) -> list[Batch]:
    """The nearest steps whose batches are whole; with labels that are not their token only if there are no others."""
    clean, altered = [], []
    for number in ordinary.around(batch.step, log.near)[: _TRIED * count]:
        one = rebuild(log.near[number], data, collator)
        if one.same and not log.near[number].incomplete:
            (altered if one.altered_share else clean).append(one)
        if len(clean) == count:
            break
    if len(clean) < ordinary.FEWEST:
        clean += altered
    return sorted(clean, key=lambda one: abs(one.step - batch.step))[:count]


def _figures(batch: Batch, passed: Passed | None, run: RecordedRun) -> Figures:
    """Counts are of the log, so that they hold for samples that are not in the data any more."""
    logged = [one for sample in batch.samples for one in (sample.logged, sample.logged.rejected) if one is not None]
    tokens = sum(one.tokens for one in logged)
    ran = passed is not None and bool(passed.sums)
    return Figures(
        step=batch.step,
        loss=passed.loss if ran else None,
        grad_norm=passed.grad_norm if ran else None,
        tokens=tokens,
        supervised_ratio=sum(one.supervised for one in logged) / max(tokens, 1),
        longest=max((one.tokens for one in logged), default=0),
        altered_ratio=batch.altered_share,
        recorded_loss=run.number("train/loss", batch.step),
        recorded_grad_norm=run.number("train/grad_norm", batch.step),
    )


def _compare(report: Report) -> None:
    for name in ordinary.SCALES:
        for column in (name, f"recorded_{name}"):
            if hasattr(report.figures, column):
                values = [getattr(one, column) for one in report.ordinary]
                judged = ordinary.judge(name, getattr(report.figures, column), values)
                if judged is not None:
                    report.compared[column] = judged


def _why_not(stage: str) -> str:
    if stage in _RUN:
        return ""
    return f"the loss of stage {stage} compares answers and is not run here; rows and labels are rebuilt and shown"


def _setting(loaded, passes: Passes) -> str:
    dtypes = {str(one.dtype).removeprefix("torch.") for one in loaded.model.parameters()}
    mixed = f", mixed with {str(loaded.autocast).removeprefix('torch.')}" if loaded.autocast is not None else ""
    return f"{loaded.device}, {' and '.join(sorted(dtypes))}{mixed}; {passes.trainable:,} trainable parameters"


def _to_show(report: Report, show_all: bool) -> list:
    if show_all:
        return report.batch.samples
    if report.verdict != DATA:
        return []
    if report.carriers is None:
        return [sample for sample in report.batch.samples if sample.altered][:_SHOWN]
    worst = sorted(report.carriers.found, key=lambda part: -(part.loss or 0.0))
    return [part.sample for part in worst[:_SHOWN]]


def _limits(run: RecordedRun, log: SampleLog, report: Report, data: TrainingSet) -> list[str]:
    limits = []
    step, segment = report.step, log.near[report.step].segment
    newest = max((one.segment for one in log.near.values()), default=segment)
    if report.weights is not None:
        limits.append("dropout is off here, in the run it was on where the config or the model has it")
        if report.weights.step != step - 1:
            limits.append(f"the weights are not those of step {step} exactly: small differences mean nothing")
        seen = [one.step for one in report.ordinary if report.weights.step and one.step <= report.weights.step]
        if seen:
            limits.append(
                f"{len(seen)} of {len(report.ordinary)} ordinary batches were trained on before these weights"
            )
    lacking = sorted(set(range(run.world_size)) - set(log.near[step].ranks))
    if lacking:
        limits.append(f"the part of rank {', '.join(map(str, lacking))} is not in it")
    if log.near[step].incomplete:
        limits.append("training broke off in this step: the batch is there as far as it got")
    if segment != newest:
        limits.append("the step is of an earlier start of this run; the config replayed is that of the newest start")
    for key in ("use_dft_loss", "use_eaft_loss", "use_asft_loss"):
        if getattr(data.arguments.finetuning, key, False):
            limits.append(f"{key}: the run's loss is another one, here it is cross entropy")
    if data.arguments.training.label_smoothing_factor:
        limits.append("label_smoothing_factor: the run's loss is smoothed, here it is plain cross entropy")
    if data.arguments.model.moe_aux_loss_coef:
        limits.append("moe_aux_loss_coef: the experts' auxiliary loss is not part of the loss here")
    return limits
