"""One folder of more than 40 checkpoints, broken in as many ways: each named rightly, none touched, nothing run."""

import os

import pytest
from checkpoint_folder import at_rest, listing, plant
from checkpoint_ways import BROKEN, WAYS

from llamafactory_obs.checkpoint.examine import Depth
from llamafactory_obs.checkpoint.folder import examine_folder
from llamafactory_obs.checkpoint.loading import Loader
from llamafactory_obs.texts import speaking

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broken(lora_smoke, full_smoke, tmp_path_factory):
    """The folder, examined: `(folder, {name of the way: Examined}, touched)`."""
    folder = tmp_path_factory.mktemp("broken")
    steps = {}
    for step, (name, way) in enumerate(WAYS.items(), 11):
        source = (lora_smoke if way.of == "lora" else full_smoke).checkpoint()
        way.do(plant(source, folder, step))
        at_rest(folder / f"checkpoint-{step}")
        steps[step] = name
    before, here = listing(folder), os.getcwd()
    os.chdir(tmp_path_factory.mktemp("here"))
    try:
        with Loader("cpu") as loader:
            report = examine_folder(folder, loader=loader, depth=Depth())
        ran = os.listdir()
    finally:
        os.chdir(here)
    after = listing(folder)
    touched = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return folder, {steps[one.step]: one for one in report.checkpoints}, touched + ran


def test_there_are_forty_and_all_are_listed(broken):
    assert len([way for way in WAYS.values() if way.verdict == BROKEN]) >= 40
    assert broken[1].keys() == WAYS.keys()


@pytest.mark.parametrize("name", WAYS)
def test_it_is_named_rightly(broken, name):
    way, found = WAYS[name], broken[1][name]
    said = " | ".join([*found.verdict.reasons, *found.verdict.notes])
    assert found.verdict.verdict == way.verdict, said
    assert all(word in said for word in way.says), said
    assert way.serves is None or found.verdict.serves is way.serves, said
    assert way.resumes is None or found.verdict.resumes is way.resumes, said
    if way.verdict == "resumes exactly":
        assert found.loaded.loaded and not found.verdict.reasons and found.good


def test_nothing_was_touched_and_nothing_was_run(broken):
    assert broken[2] == []


def test_a_quick_look_crashes_for_none_and_trusts_no_broken_file(broken):
    report = examine_folder(broken[0], depth=Depth(values=False))
    assert len(report.checkpoints) == len(WAYS)
    need_content = {"weights_nan", "weights_lora_b_zero", "weights_a_layer_short", "weights_malicious_bin"}
    need_content |= {"model_nan_bf16", "model_wiped", "model_malicious_bin", "model_key_missing"}
    need_content |= {"optimizer_other_size", "optimizer_other_step", "optimizer_malicious", "rng_malicious"}
    for (name, way), one in zip(WAYS.items(), report.checkpoints, strict=True):
        if name not in need_content and way.verdict == BROKEN:
            assert one.verdict.verdict == BROKEN, (name, one.verdict)
        if name.startswith("fine"):
            assert one.verdict.verdict == way.verdict, (name, one.verdict)


def test_chinese_names_the_same_parts_files_and_verdicts(broken):
    def said(lang):
        with speaking(lang):
            report = examine_folder(broken[0], depth=Depth())
        return [
            (one.step, one.verdict.verdict, [(part.name, part.state, part.file) for part in one.parts])
            for one in report.checkpoints
        ], [reason for one in report.checkpoints for reason in one.verdict.reasons]

    english, chinese = said("en"), said("zh")
    assert chinese[0] == english[0]
    assert sum(not reason.isascii() for reason in chinese[1]) > len(chinese[1]) / 2, "reasons in Chinese"
    assert all(reason.isascii() for reason in english[1])


def test_a_file_without_permission(lora_smoke, tmp_path, monkeypatch):
    """Root may read anything, so the refusal is the operating system's word, not its rule."""
    folder = plant(lora_smoke.checkpoint(), tmp_path, 11)
    real = os.open

    def refuse(path, *words, **named):
        if str(path).endswith(refused):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **named)

    for refused in ("adapter_model.safetensors", "optimizer.pt", "trainer_state.json", "tokenizer.json"):
        monkeypatch.setattr("llamafactory_obs.checkpoint.files.os.open", refuse)
        [one] = examine_folder(tmp_path, depth=Depth(values=False)).checkpoints
        monkeypatch.undo()
        assert one.verdict.verdict == BROKEN
        assert f"{refused} cannot be read: Permission denied" in one.verdict.reasons[0]
    assert folder.is_dir()


def test_a_folder_without_permission(lora_smoke, tmp_path, monkeypatch):
    plant(lora_smoke.checkpoint(), tmp_path, 11)
    real = os.scandir

    def refuse(path="."):
        if str(path).rstrip("/").endswith("checkpoint-11"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("os.scandir", refuse)
    [one] = examine_folder(tmp_path, depth=Depth(values=False)).checkpoints
    assert one.verdict.verdict == BROKEN and "Permission denied" in " ".join(one.verdict.reasons)
