"""What `compare` says of records: identities, bits, axes, layers, probes, the verdict, the name."""

import json
import math
from pathlib import Path

import pytest
from compare_runs import identity, layer_rows, losses, rows, run
from page_folder import event, probe, record

from llamafactory_obs.compare.compare import compare
from llamafactory_obs.compare.probes import sign_test
from llamafactory_obs.compare.runs import read_runs
from llamafactory_obs.summary import Price

N = 300
#: see `test_compare_parting.py`
REAL = json.loads((Path(__file__).parent / "parting_runs.json").read_text())
EVALS = {step: 1.0 + math.exp(-step / 60) for step in range(20, N + 1, 20)}


def pair(a, b, **more):
    found = compare(read_runs([a, b]), **more)
    return found, found.pairs[0]


def differing(found) -> dict[str, tuple]:
    return {f"{row.group}.{row.key}": (row.a, row.b) for row in found.differences.rows}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "a"
    return run(folder, losses(N, seed=1), evaluations=EVALS, layers=layer_rows(N))


def test_identical(base, tmp_path):
    again = run(tmp_path / "b", losses(N, seed=1), {"output_dir": "/out/b", "master_port": 1}, EVALS)
    found, one = pair(base, again)
    assert found.verdict.state == "identical" and one.relation == "identical" and one.exact.equal
    assert one.exact.steps == N and not one.differences.rows
    assert set(one.differences.folded) == {"output_dir", "master_port"}
    assert one.run_name == ""


def test_the_same_folder_twice(base):
    found, one = pair(base, base)
    assert one.relation == "identical" and found.runs[0].name == found.runs[1].name


@pytest.mark.parametrize(
    ("column", "reason"), [("train/grad_norm", "backward"), ("train/loss", "forward"), ("data/tokens", "other_batches")]
)
def test_nondeterminism_is_named_measured_and_explained(base, tmp_path, column, reason):
    made = rows(losses(N, seed=1), EVALS)
    for row in made[100:]:
        row["train/loss"] *= 1 + 1e-7 * (row["step"] > 101)
    made[100][column] *= 1 + 1e-7
    other = record(tmp_path / "b", steps=made, run=identity())
    found, one = pair(base, other)
    assert one.relation == "nondeterminism" and found.verdict.state == "no_difference"
    first = one.exact.first[0]
    assert (first.column, first.step, one.exact.last_equal) == (column, 101, 100)
    assert first.b / first.a - 1 == pytest.approx(1e-7, rel=0.01)
    assert one.curves[0].parting.kind == "together" and abs(one.curves[0].parting.last) < 1e-6
    codes = [code for code, _ in one.reasons]
    assert (
        codes[0] == reason and "attention" in codes and ("said", {"reason": "full_determinism is off"}) in one.reasons
    )


def test_the_name_says_the_stage_and_nothing_of_a_kind_of_tuning_that_is_not_used(base, tmp_path):
    settings = {"stage": "pt", "finetuning_type": "full", "lora_rank": 8, "lora_alpha": 16}
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=1), settings))
    assert one.run_name == "pt_full"


def test_what_neither_record_has_is_no_equal_identity(base, tmp_path):
    """A control stands above: with both known the same curves are nondeterminism."""
    folders = [
        run(tmp_path / name, losses(N, seed=seed), changes={"data__rows": None}) for seed, name in enumerate("ab")
    ]
    _, one = pair(*folders)
    assert one.relation == "unknown" and ("unknown_of_both", {"key": "data.rows"}) in one.caveats
    assert not one.reasons


def test_the_best_evaluation_of_a_longer_run_is_told_beside_the_common_one(base, tmp_path):
    short = {step: loss - 0.01 for step, loss in EVALS.items() if step <= 160}
    found, one = pair(base, run(tmp_path / "b", losses(160, seed=2), {"learning_rate": 2e-4}, short))
    assert found.verdict.better == "A", "it went further"
    common = {"run": "A", "step": 160, "a": EVALS[160], "b": EVALS[160] - 0.01}
    assert dict(one.caveats)["best_beyond"] == pytest.approx(common)
    _, other = pair(base, run(tmp_path / "c", losses(N, seed=2), {"learning_rate": 2e-4}, EVALS))
    assert "best_beyond" not in dict(other.caveats)


def test_several_processes_are_a_reason(base, tmp_path):
    folders = []
    for name, seed in (("a", 1), ("b", 2)):
        changes = {"world__world_size": 8, "world__global_batch": 32}
        folders.append(run(tmp_path / name, losses(N, seed=seed), changes=changes))
    _, one = pair(*folders)
    assert one.relation == "nondeterminism" and ("processes", {"count": 8}) in one.reasons


CHANGES = {
    "config.learning_rate": ({"learning_rate": 2e-5}, {}, "lr2e-5"),
    "config.lora_rank": ({"lora_rank": 32, "learning_rate": 2e-5}, {}, "lr2e-5_r32"),
    "seed.seed": ({}, {"seeds__seed": 7}, "seed7"),
    "precision.compute": ({"bf16": False, "fp16": True}, {"precision__compute": "fp16"}, "fp16"),
    "world.world_size": ({}, {"world__world_size": 8, "world__global_batch": 4}, ""),
    "code.sha": ({}, {"code__sha": "b" * 40}, "bbbbbbb"),
    "code.diff_sha256": ({}, {"code__diff_sha256": "d" * 64, "code__dirty": True}, ""),
    "packages.torch": ({}, {"packages__list": ["torch==2.9.0", "transformers==5.6.0", "tqdm==4.70"]}, ""),
    "data.rows.sha256": ({}, {"data__rows": {"sha256": "x" * 64, "rows": 650, "tokens": 90000}}, "xxxxxxx"),
    "template.template": ({"template": "llama3"}, {"data__settings__template": "llama3"}, "llama3"),
    "model.weights.sha256": ({}, {"model__weights": {"sha256": "y" * 64}}, "yyyyyyy"),
    "hardware.driver": ({}, {"hardware__driver": "580"}, ""),
    "model.attn_implementation": ({}, {"model__attn_implementation": "eager"}, "eager"),
}


@pytest.mark.parametrize("key", CHANGES)
def test_every_kind_of_difference_is_found_once(base, tmp_path, key):
    settings, changes, name = CHANGES[key]
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=1), settings, EVALS, changes))
    found = differing(one)
    assert key in found, found
    assert len({name for name in found if name.endswith(key.split(".")[-1])}) == 1
    assert name in one.run_name
    assert one.relation == "repeat", "the curves are the same"


def test_groups_are_ranked_and_paths_folded(base, tmp_path):
    settings = {"learning_rate": 2e-5, "report_to": "wandb", "output_dir": "/else", "logging_steps": 5, "seed": 2}
    changes = {"seeds__seed": 2, "seeds__data_seed_used": 2, "data__template_sha256": "z" * 64, "code__sha": "c" * 40}
    _, one = pair(base, run(tmp_path / "b", losses(N), settings, changes=changes))
    assert [row.group for row in one.differences.rows] == ["template", "config", "seed", "code"]
    assert set(one.differences.folded) == {"report_to", "output_dir", "logging_steps"}


def test_rows_drawn_by_another_seed_follow_from_it(base, tmp_path):
    changes = {"seeds__seed": 2, "data__rows": {"sha256": "s" * 64, "rows": 640, "tokens": 90001}}
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=2), {"seed": 2}, changes=changes))
    assert {row.key: row.note for row in one.differences.rows} == {
        "seed": "", "rows.sha256": "follows_seed", "rows.tokens": "follows_seed",
    }  # fmt: skip
    assert one.run_name == "seed2"


def test_what_only_one_run_knows_is_no_difference(base, tmp_path):
    changes = {"data__rows": None, "unknown": [{"what": "data.rows", "why": "not hashed yet"}]}
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=1), changes=changes))
    assert not one.differences.rows and any(key.startswith("data.rows") for key in one.differences.unknown)
    assert "unknown" in dict(one.caveats)


def test_a_setting_that_no_run_uses_is_folded(base, tmp_path):
    full = run(tmp_path / "a", losses(N), {"finetuning_type": "full"})
    _, one = pair(full, run(tmp_path / "b", losses(N), {"finetuning_type": "full", "lora_rank": 64}))
    assert not one.differences.rows and one.differences.folded == ["lora_rank"]


def test_other_batches_are_compared_by_samples(base, tmp_path):
    curve = losses(N, seed=5)
    half = [(curve[i] + curve[i + 1]) / 2 for i in range(0, N, 2)]
    changes = {"world__global_batch": 8, "world__per_device_batch": 8}
    wide = run(tmp_path / "b", half, {"per_device_train_batch_size": 8}, changes=changes)
    _, one = pair(base, wide)
    assert (one.axis.name, one.axis.factor, one.axis.high) == ("samples", 2.0, N)
    assert one.exact is None and one.curves[0].parting.kind == "together" and one.curves[0].parting.rows == N // 2
    shifted = [x * (1.3 if i >= 100 else 1) for i, x in enumerate(half)]
    _, one = pair(base, run(tmp_path / "c", shifted, {"per_device_train_batch_size": 8}, changes=changes))
    assert one.curves[0].parting.kind == "parted" and abs(one.curves[0].since - 200) <= 10, "in steps of A"


def test_other_lengths_are_compared_by_tokens(base, tmp_path):
    made = rows(losses(N // 2, seed=5), **{"data/tokens": 2000.0})
    packed = record(tmp_path / "b", steps=made, run=identity({"packing": True}, data__settings__packing=True))
    _, one = pair(base, packed)
    assert one.axis.name == "tokens" and one.axis.factor == pytest.approx(2.0)
    assert one.axis.high == pytest.approx(N)


def test_logs_of_other_intervals(base, tmp_path):
    curve = losses(N, seed=1)
    means = [
        {"step": i, "loss": sum(curve[i - 10 : i]) / 10, "learning_rate": 1e-4, "epoch": i / 100}
        for i in range(10, N + 1, 10)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": means, "global_step": N}))
    _, one = pair(base, tmp_path / "trainer_state.json")
    assert one.curves[0].parting.rows == 30 and one.curves[0].parting.level == pytest.approx(0, abs=1e-9)
    assert "no_identity" in dict(one.caveats) and one.relation == "unknown"


def test_better_by_the_evaluation(base, tmp_path):
    better = {step: loss * 0.9 for step, loss in EVALS.items()}
    found, one = pair(base, run(tmp_path / "b", [x * 0.9 for x in losses(N, seed=2)], {"learning_rate": 2e-4}, better))
    assert (found.verdict.state, found.verdict.better) == ("better", "B")
    assert one.evaluation.difference == pytest.approx(math.log(0.9)) and one.evaluation.same_set is True
    same = {step: loss * 1.01 for step, loss in EVALS.items()}
    found, _ = pair(base, run(tmp_path / "c", losses(N, seed=2), {"learning_rate": 2e-4}, same))
    assert found.verdict.state == "no_difference"


def test_a_lower_training_loss_alone_does_not_decide(base, tmp_path):
    found, _ = pair(base, run(tmp_path / "b", [x * 0.8 for x in losses(N, seed=2)], {"learning_rate": 2e-4}))
    assert (found.verdict.state, found.verdict.better) == ("fits_better", "B")


def test_an_evaluation_on_other_data_does_not_decide(base, tmp_path):
    changes = {"data__files": {"orders": {"sha256": "f" * 64}, "held": {"sha256": "q" * 64}}}
    other = {step: loss * 0.5 for step, loss in EVALS.items()}
    found, one = pair(base, run(tmp_path / "b", losses(N, seed=2), evaluations=other, changes=changes))
    assert one.evaluation.same_set is False and found.verdict.state == "no_difference"


def test_another_loss_is_not_compared_by_its_level(base, tmp_path):
    found, one = pair(base, run(tmp_path / "b", losses(N, end=0.2), {"train_on_prompt": True}, EVALS))
    assert found.verdict.state == "not_comparable" and "other_loss" in dict(one.caveats)


def test_other_kinds(base, tmp_path):
    made = rows([0.69] * N, **{"rewards/margins": 0.1, "rewards/accuracies": 0.6})
    found, one = pair(base, record(tmp_path / "b", steps=made, run=identity({"stage": "dpo"})))
    assert found.verdict.state == "not_comparable" and one.curves == [] and "other_kind" in dict(one.caveats)


def test_a_run_that_ends_in_nan_is_worse(base, tmp_path):
    curve = [*losses(N - 40, seed=2), *[math.nan] * 40]
    found, _ = pair(base, run(tmp_path / "b", curve, {"learning_rate": 1e-2}))
    assert (found.verdict.state, found.verdict.better) == ("better", "A")


def test_layers(base, tmp_path):
    changed = layer_rows(N, {"layers.3": 2.0}, seed=9)
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=2), {"learning_rate": 2e-4}, layers=changed))
    most = one.layers.most[0]
    assert (most.measure, most.name, most.beyond) == ("grad_norm", "layers.3", True)
    assert most.ratio == pytest.approx(2.0, rel=0.03) and one.layers.overall["grad_norm"] == pytest.approx(1, abs=0.03)
    assert not any(row.beyond for row in one.layers.most if row.name != "layers.3")


def test_layers_after_a_resume_are_the_newest(base, tmp_path):
    old, new = layer_rows(N, {"layers.0": 9.0}), layer_rows(N)
    for row in new:
        row["segment"] = 1
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=2), layers=[*old, *new]))
    assert not any(row.beyond for row in one.layers.most)


def test_probes_side_by_side(base, tmp_path):
    def asked(passing: set[int]) -> list[dict]:
        return [probe(300, f"p{i}", i in passing, "x") for i in range(12)]

    a = run(tmp_path / "a", losses(N, seed=1), probes=asked({0, 1, 2, 3, 4}))
    b = run(tmp_path / "b", losses(N, seed=2), {"learning_rate": 2e-4}, probes=asked({1, 2, 3, 4, *range(5, 12)}))
    found, one = pair(a, b)
    words = {row.name: row.word for row in one.probes.rows}
    assert (one.probes.fixed, one.probes.broke, words["p0"], words["p5"], words["p1"]) == (
        7,
        1,
        "broke",
        "fixed",
        "same_pass",
    )
    assert found.verdict.state == "no_difference", "7 of 8 may be chance: p = 0.07"
    found, _ = pair(a, run(tmp_path / "c", losses(N, seed=2), {"learning_rate": 2e-4}, probes=asked(set(range(12)))))
    assert (found.verdict.state, found.verdict.better) == ("better", "B")
    assert sign_test(7, 1) == pytest.approx(0.0703125) and sign_test(7, 0) == pytest.approx(0.015625)


def test_resumes_are_named_and_the_newest_rows_count(base, tmp_path):
    first = rows([9.0] * 200)
    second = rows(losses(N, seed=1), EVALS)[100:]
    for row in second:
        row |= {"segment": 1, "time": row["time"] + 500}
    made = [*rows(losses(N, seed=1))[:100], *first[100:], *second]
    events = [event(0, kind="start"), event(100, kind="resume", segment=1)]
    _, one = pair(base, record(tmp_path / "b", steps=made, run=identity(), events=events))
    assert one.exact.equal and one.exact.steps == N and one.relation == "identical"
    assert dict(one.caveats)["resumes"]["steps"] == "101"


def test_three_runs_and_more(base, tmp_path):
    folders = [base]
    for i, factor in enumerate((1.0, 0.8, 0.9, 1.3)):
        evals = {step: loss * factor for step, loss in EVALS.items()}
        folders.append(run(tmp_path / f"r{i}", losses(N, seed=i + 2), {"learning_rate": 1e-3 * (i + 1)}, evals))
    found = compare(read_runs(folders, Price(2.0, "CNY", "--price")), by="eval_best")
    assert found.order == ["C", "D", "A", "B", "E"]
    assert (found.verdict.state, found.verdict.better) == ("better", "C")
    assert found.runs[0].cost == pytest.approx(found.runs[0].summary.machine_hours * 2.0)


def real(folder, curve: list[float], seed: int, **settings):
    rows_of_seed = {"sha256": f"{seed:064d}", "rows": 640, "tokens": 90000 + seed}
    changes = {"seeds__seed": seed, "seeds__data_seed_used": seed, "data__rows": rows_of_seed}
    return run(folder, curve, {"seed": seed, **settings}, changes=changes)


def test_what_lies_between_seeds_is_noise(tmp_path):
    """Real runs of four seeds; alone the rule calls three of the six pairs apart, by up to 20 %."""
    curves = REAL["constant_1e-3"]
    folders = [real(tmp_path / seed, curves[seed], int(seed)) for seed in sorted(curves)]
    found = compare(read_runs(folders))
    assert found.verdict.state == "no_difference"
    for one in found.pairs:
        assert one.relation == "seeds" and one.verdict.state == "no_difference"
        assert one.curves[0].parting.kind in ("together", "level")
    assert found.spread.train == pytest.approx(max(abs(one.curves[0].parting.last) for one in found.pairs))


def test_the_spread_between_seeds_is_what_others_must_exceed(tmp_path):
    curves = REAL["constant_1e-3"]
    a = real(tmp_path / "1", curves["1"], 1)
    slightly = real(tmp_path / "slightly", [x * 1.1 for x in curves["1"]], 1, learning_rate=2e-4)
    other = real(tmp_path / "up", REAL["times_12_at_101"]["1"], 1, learning_rate=3e-4)
    found = compare(read_runs([a, slightly, other]))
    assert [one.verdict.better for one in found.pairs] == ["A", "A"]
    found = compare(read_runs([a, slightly, other, real(tmp_path / "4", curves["4"], 4)]))
    assert [one.verdict.better for one in found.pairs] == [None, "A", None]


def test_callbacks_of_others_count(base, tmp_path):
    entry = {"name": "/x/mine.py:Scale", "args": {"by": 2}}
    changes = {"config__given": {"stage": "sft", "callbacks": ["vram", {"layer_norms": {"every": 1}}, entry]}}
    _, one = pair(base, run(tmp_path / "b", losses(N, seed=1), changes=changes))
    assert differing(one) == {"config.callbacks": ([], ["/x/mine.py:Scale {'by': 2}"])}
    assert one.run_name == "scale"
