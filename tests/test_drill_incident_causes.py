"""What drills taught `diagnose`: memory that ran out, labels that moved, one bad gradient, weights without any."""

import math

import pytest
from log_curves import STEPS, found, log, noisy

from llamafactory_obs.detect.out_of_memory import says_out_of_memory
from llamafactory_obs.diagnosis.causes import causes
from llamafactory_obs.diagnosis.from_record import from_record
from llamafactory_obs.diagnosis.judge import judge

CPU = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
)


def event(step: int, title: str, kind: str = "alert", text: str = "", evidence: dict | None = None) -> dict:
    about = {"step": step, "time": float(step), "segment": 0, "kind": kind, "level": "error", "name": "some"}
    return about | {"title": title, "text": text, "evidence": evidence or {}}


def first(curves, finding) -> str:
    return causes(curves, finding)[0].name


def score(curves, name: str, finding) -> float:
    return next((cause.score for cause in causes(curves, finding) if cause.name == name), 0.0)


def ran_out(longest: int | None = 8000, step: int = STEPS + 1, **columns):
    """A log that ends before a step in which memory ran out; ordinary batches have up to 520 tokens."""
    usual = {"data_max_length": [500.0 + step % 21 for step in range(STEPS)]}
    curves = log(noisy(), **{**usual, **columns})
    evidence = {"longest_sequence": longest, "micro_batches": [[2, longest]]} if longest else {}
    curves.events = [event(step, "out of memory", kind="oom", text="out of memory in step 121", evidence=evidence)]
    curves.events.append(event(step - 1, "training ends: crash", kind="crash", text=CPU))
    return curves


def of(curves, name: str = "oom"):
    [finding] = [one for one in from_record(curves, []) if one.name == name]
    return finding


def test_memory_that_ran_out_with_a_long_batch():
    curves = ran_out()
    finding = of(curves)
    assert (finding.step, finding.action, finding.level) == (STEPS + 1, "kill", "error")
    assert first(curves, finding) == "special_batch"
    said = judge(curves)
    assert (said.verdict, said.action) == ("oom", "kill") and said.headline.startswith("Out of memory in step 121")


def test_memory_that_ran_out_without_one():
    usual = ran_out(longest=520)
    assert score(usual, "special_batch", of(usual)) == 0 and first(usual, of(usual)) == "unknown"
    near = ran_out(longest=520, system_margin_gib=[0.4] * STEPS)
    assert first(near, of(near)) == "no_room"
    at_once = ran_out(longest=520, step=1)
    at_once.steps, at_once.columns = at_once.steps[:0], {}
    assert first(at_once, of(at_once)) == "no_room"
    leaking = ran_out(longest=520, system_allocated_gib=[4 + 0.05 * step for step in range(STEPS)])
    assert first(leaking, of(leaking)) == "leak"


def test_an_exception_says_it_where_vram_was_not_on():
    curves = log(noisy())
    curves.events = [event(STEPS, "training ends: crash", kind="crash", text=CPU)]
    assert of(curves).step == STEPS + 1 and judge(curves).verdict == "oom"
    curves.events = [event(STEPS, "training ends: crash", kind="crash", text="ValueError: no such template")]
    assert from_record(curves, []) == []


def test_a_run_that_went_on_has_it_behind_it():
    resumed = ran_out(step=60)
    finding = of(resumed)
    assert (finding.level, finding.action, finding.until) == ("info", "keep", 60)
    assert judge(resumed).verdict == "healthy"


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("HIP out of memory. Tried", True),
        (CPU, True),
        ("MemoryError: ", True),
        ("OSError: [Errno 12] Cannot allocate memory", True),
        ("OSError: [Errno 28] No space left on device", False),
        ("ValueError: out of range", False),
    ],
)
def test_the_words_for_it(text, is_it):
    assert says_out_of_memory(text) is is_it


def test_torch_really_says_so():
    torch = pytest.importorskip("torch")
    from llamafactory_obs.callbacks.failures import is_out_of_memory

    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55)
    assert is_out_of_memory(caught.value) and is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("shape"))


def moved(steps, count: float = 40.0) -> list[float]:
    return [count if step in steps else 0.0 for step in range(1, STEPS + 1)]


def test_labels_that_moved_are_a_finding_though_the_loss_is_silent():
    once = log(noisy(), data_labels_moved=moved([90]))
    finding = of(once, "labels_moved")
    assert (finding.step, finding.until, finding.action) == (90, 90, "keep")
    assert first(once, finding) == "special_batch" and judge(once).verdict == "labels_moved"
    always = log(noisy(), data_labels_moved=moved(range(30, STEPS + 1)))
    assert of(always, "labels_moved").until is None and first(always, of(always, "labels_moved")) == "labels"
    assert from_record(log(noisy(), data_labels_moved=moved([])), []) == []


def test_a_spike_that_shows_them_says_it_alone():
    curves = log(noisy(), data_labels_moved=moved([90]))
    assert from_record(curves, [found("spike", step=91, since=90)]) == []
    assert len(from_record(curves, [found("spike", step=40, since=40)])) == 1


def test_one_bad_gradient_is_known_from_the_alert():
    """Offline the finding itself names none: the alert of `grad_norm_spike` does."""
    norms = [1.0] * STEPS
    norms[89:] = [math.inf] + [math.nan] * (STEPS - 90)
    curves = log(noisy(), train_grad_norm=norms)
    named = {"nonfinite_gradients": ["layers.3.q_proj"], "gradient_count": 42}
    curves.events = [event(90, "inf", evidence=named)]
    assert first(curves, found("inf", step=90)) == "attention_or_kernel"
    curves.events = []
    assert first(curves, found("inf", step=90)) == "unknown"
    growing = log([1.5 + max(0, step - 75) * 0.5 for step in range(1, STEPS + 1)], train_grad_norm=norms)
    growing.events = [event(90, "inf", evidence=named)]
    assert score(growing, "attention_or_kernel", found("inf", step=90)) < 0.5, "what grows ends somewhere first"


def test_trainable_weights_that_no_gradient_reaches():
    flat = found("flat", step=STEPS)
    curves = log(noisy(level=2.5), train_grad_norm=[0.0] * STEPS, train_lr=[2e-4] * STEPS)
    curves.run = {"model": {"parameters": {"total": 10**9, "trainable": 10**7}}}
    assert first(curves, flat) == "nothing_trainable"
    masked = log(
        noisy(level=2.5), train_grad_norm=[0.0] * STEPS, data_supervised_ratio=[0.0] * STEPS
    )  # fmt: skip
    masked.run = curves.run
    assert first(masked, flat) == "labels"
