"""Scaling a schedule: every later rate is the planned one times the factor, also after a trip through files."""

import io
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from accelerate.scheduler import AcceleratedScheduler  # noqa: E402
from torch.optim import lr_scheduler as schedules  # noqa: E402
from transformers import get_scheduler  # noqa: E402

from llamafactory_obs.callbacks.lr_scale import CannotScale, scale_schedule, schedule_is_fresh  # noqa: E402
from llamafactory_obs.detect import LrScheduleDetector  # noqa: E402

STEPS, AT, FACTOR = 40, 13, 0.3
RATES = (1e-3, 4e-3)  # as LoRA+ has them


def of_transformers(name: str, **options):
    return lambda opt: get_scheduler(name, opt, 5, STEPS, scheduler_specific_kwargs=options or None)


def chained(opt):
    return schedules.ChainedScheduler([schedules.ExponentialLR(opt, 0.97), schedules.StepLR(opt, 7, 0.5)])


def sequential(opt):
    parts = [schedules.LinearLR(opt, 0.1, total_iters=5), schedules.CosineAnnealingLR(opt, 12, eta_min=1e-5)]
    return schedules.SequentialLR(opt, [*parts, schedules.PolynomialLR(opt, 20)], milestones=[5, 20])


BY_STEP = {
    **{name: of_transformers(name) for name in ("linear", "cosine", "polynomial", "constant", "constant_with_warmup")},
    **{name: of_transformers(name) for name in ("inverse_sqrt", "cosine_with_restarts")},
    "cosine_with_min_lr": of_transformers("cosine_with_min_lr", min_lr=1e-4),
    "warmup_stable_decay": of_transformers("warmup_stable_decay", num_decay_steps=10),
    "step": lambda opt: schedules.StepLR(opt, 9, 0.3),
    "cosine_annealing": lambda opt: schedules.CosineAnnealingLR(opt, STEPS, eta_min=2e-4),
    "warm_restarts": lambda opt: schedules.CosineAnnealingWarmRestarts(opt, 9, eta_min=1e-4),
    "one_cycle": lambda opt: schedules.OneCycleLR(opt, [5e-3, 2e-2], total_steps=STEPS + 1, cycle_momentum=False),
    "cyclic": lambda opt: schedules.CyclicLR(opt, 1e-4, 1e-3, step_size_up=4, mode="exp_range", cycle_momentum=False),
    "multiplicative": lambda opt: schedules.MultiplicativeLR(opt, lambda step: 0.95),
    "chained": chained,
    "sequential": sequential,
}
BY_METRIC = {
    "reduce_lr_on_plateau": lambda opt: schedules.ReduceLROnPlateau(opt, patience=2, factor=0.5, min_lr=1e-4),
    "greedy": of_transformers("greedy", patience=2, min_lr=1e-5, max_lr=2e-3, factor=0.8),
}


def build(make, as_tensor: bool = False):
    rates = [torch.tensor(rate, dtype=torch.float64) if as_tensor else rate for rate in RATES]
    groups = [{"params": [torch.nn.Parameter(torch.zeros(2))], "lr": rate} for rate in rates]
    optimizer = torch.optim.AdamW(groups)
    return SimpleNamespace(optimizer=optimizer, lr_scheduler=make(optimizer))


def rates_of(trainer, metric: bool, steps: range) -> list[list[float]]:
    """The rates of the updates `steps`."""
    found = []
    for step in steps:
        found.append([float(group["lr"]) for group in trainer.optimizer.param_groups])
        trainer.optimizer.step()
        trainer.lr_scheduler.step(*([1 / step if step < 8 else 1.0 + step % 3] if metric else []))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", [*BY_STEP, *BY_METRIC])
def test_each_later_rate_is_the_planned_one_times_the_factor(name, as_tensor):
    make, metric = {**BY_STEP, **BY_METRIC}[name], name in BY_METRIC
    if as_tensor and (metric or name in ("one_cycle", "cyclic", "chained", "sequential")):
        pytest.skip("this schedule does not do with tensors")
    plan = rates_of(build(make, as_tensor), metric, range(1, STEPS))
    trainer = build(make, as_tensor)
    assert rates_of(trainer, metric, range(1, AT + 1)) == plan[:AT]
    change = scale_schedule(trainer, FACTOR)
    assert change.before == pytest.approx(plan[AT], rel=1e-6)
    assert change.after == pytest.approx([rate * FACTOR for rate in plan[AT]], rel=1e-6)
    assert [float(rate) for rate in trainer.lr_scheduler.get_last_lr()] == pytest.approx(change.after, rel=1e-6)

    resumed = build(make, as_tensor)  # as the Trainer does it: optimizer.pt and scheduler.pt
    for of in ("optimizer", "lr_scheduler"):
        file = io.BytesIO()
        torch.save(getattr(trainer, of).state_dict(), file)
        file.seek(0)
        getattr(resumed, of).load_state_dict(torch.load(file, weights_only=False))
    for one in (trainer, resumed):
        rest = rates_of(one, metric, range(AT + 1, STEPS))
        for step, (found, planned) in enumerate(zip(rest, plan[AT:], strict=True), AT + 1):
            assert found == pytest.approx([rate * FACTOR for rate in planned], rel=1e-6, abs=1e-15), step


def test_through_accelerates_wrapper():
    trainer = build(BY_STEP["linear"])
    trainer.lr_scheduler = AcceleratedScheduler(trainer.lr_scheduler, trainer.optimizer)
    assert schedule_is_fresh(trainer)
    scale_schedule(trainer, 0.5)
    assert trainer.lr_scheduler.scheduler.base_lrs == [0.5e-3, 2e-3]
    assert schedules.StepLR(trainer.optimizer, 9, last_epoch=1).base_lrs == [0.5e-3, 2e-3], "made anew, from the groups"
    trainer.optimizer.step()
    trainer.lr_scheduler.scheduler.step()
    assert not schedule_is_fresh(trainer)


class OwnSchedule:
    def __init__(self, optimizer):
        self.optimizer, self.base_lrs = optimizer, [1e-3, 4e-3]


def test_what_is_out_of_reach_is_refused_and_left_alone():
    layer_wise = build(BY_STEP["linear"])
    layer_wise.optimizer.optimizer_dict = {}
    by_itself = build(BY_STEP["linear"])
    by_itself.optimizer.param_groups[1]["lr"] = None
    for trainer, why in (
        (build(OwnSchedule), "OwnSchedule"),
        (build(lambda optimizer: None), "no scheduler"),
        (layer_wise, "layer-wise"),
        (by_itself, "sets its own rate"),
    ):
        before = str(trainer.optimizer.param_groups[0]["lr"])
        with pytest.raises(CannotScale, match=why):
            scale_schedule(trainer, 0.5)
        assert str(trainer.optimizer.param_groups[0]["lr"]) == before


def test_the_course_of_a_scaled_schedule_is_no_jump():
    plan = [1e-3 * (1 - step / 40) for step in range(40)]
    told, not_told = LrScheduleDetector(), LrScheduleDetector()
    found: dict = {"told": [], "not told": []}
    for step, rate in enumerate(plan, 1):
        scaled = rate * (0.2 if step > 20 else 1)
        if step == 21:
            told.rescale(0.2)
        for name, detector in (("told", told), ("not told", not_told)):
            if (finding := detector.update(step, scaled, planned=scaled)) is not None:
                found[name].append((step, finding.name))
    assert found == {"told": [(1, "first rate")], "not told": [(1, "first rate"), (21, "jump")]}
