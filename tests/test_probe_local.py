"""The local backend against a greedy loop written by hand, on real adapters and whole models."""

import json
import shutil

import pytest

from llamafactory_obs.probe.backends import Refused
from llamafactory_obs.probe.copies import Taken

torch = pytest.importorskip("torch", reason='torch is not installed: pip install "llamafactory-obs[local]"')
pytest.importorskip("peft", reason='peft is not installed: pip install "llamafactory-obs[local]"')

PROMPT = list(range(10, 30))


def by_hand(model, prompt, stop, count):
    """Greedy decoding without a cache, one forward pass per token."""
    ids = list(prompt)
    with torch.inference_mode():
        while len(ids) < len(prompt) + count:
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] in stop:
                break
    return ids[len(prompt) :]


def load(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()


def adapter(base, folder, seed, **options):
    """A LoRA adapter of the base with random weights, as peft saves it."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        options = {"r": 4, "lora_alpha": 64, "target_modules": ["q_proj", "v_proj", "down_proj"], **options}
        model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **options))
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.5)
        model.save_pretrained(folder)
    merged = model.merge_and_unload().eval()
    return Taken(folder.name, 1, "adapter", folder, folder.name, "s", ()), merged


@pytest.fixture
def local(model):
    from llamafactory_obs.probe.backends.local import LocalModels

    return LocalModels(str(model), "cpu")


def ask(backend, taken, stop=(2,), count=12):
    with backend.open(taken) as opened:
        return opened.generate(PROMPT, list(stop), count, lambda n: None), opened.notes


def test_adapters_are_swapped_and_the_base_stays_what_it_was(local, model, tmp_path):
    base = load(model)
    first, second = (adapter(model, tmp_path / f"checkpoint-{n}", n) for n in (1, 2))
    expected = [by_hand(m, PROMPT, [2], 12) for m in (base, first[1], second[1])]
    assert len({tuple(ids) for ids in expected}) == 3, "three different models"
    weights = {name: tensor.clone() for name, tensor in local._base(str(model)).state_dict().items()}
    for _ in range(2):
        for taken, ids in zip((None, first[0], second[0]), expected, strict=True):
            assert ask(local, taken)[0].ids == ids
    after = local._base(str(model)).state_dict()
    assert after.keys() == weights.keys() and all(torch.equal(after[name], weights[name]) for name in weights)


def test_a_whole_checkpoint_is_loaded_and_freed(local, model, tmp_path):
    from conftest import ROOT  # noqa: F401  (the fixture's model is a plain folder)

    shutil.copytree(model, tmp_path / "checkpoint-5")
    taken = Taken("checkpoint-5", 5, "full", tmp_path / "checkpoint-5", "c", "s", ())
    assert ask(local, taken)[0].ids == by_hand(load(model), PROMPT, [2], 12)
    assert local._held is None


def test_an_end_token_ends_it_and_a_limit_cuts_it(local, model):
    plain = ask(local, None, stop=[399])[0]
    assert plain.finish == "length" and len(plain.ids) == 12
    ended = ask(local, None, stop=[plain.ids[4]])[0]
    cut = plain.ids.index(plain.ids[4]) + 1
    assert ended.finish == "stop" and ended.ids == plain.ids[:cut]
    assert 0 < plain.first_token_s < plain.seconds


def test_sampling_defaults_of_the_model_do_not_count(local, model, tmp_path):
    """TPL-4: a generation_config.json with temperature and a repetition penalty."""
    shutil.copytree(model, tmp_path / "m")
    sampling = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 3.0, "max_length": 4, "min_new_tokens": 9}
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(sampling))
    taken = Taken("checkpoint-5", 5, "full", tmp_path / "m", "c", "s", ())
    assert ask(local, taken)[0].ids == by_hand(load(model), PROMPT, [2], 12)


def test_dora_and_saved_modules_work_here_where_vllm_refuses(local, model, tmp_path):
    for number, options in enumerate(({"use_dora": True}, {"modules_to_save": ["lm_head"]}), 1):
        taken, merged = adapter(model, tmp_path / f"checkpoint-{number}", number, **options)
        assert ask(local, taken)[0].ids == by_hand(merged, PROMPT, [2], 12)
    assert ask(local, None)[0].ids == by_hand(load(model), PROMPT, [2], 12)


def test_an_initialisation_that_changes_the_base_does_not_stay(local, model, tmp_path):
    taken, _ = adapter(model, tmp_path / "checkpoint-1", 1, init_lora_weights="pissa")
    ask(local, taken)
    assert ask(local, None)[0].ids == by_hand(load(model), PROMPT, [2], 12)


def test_refusals_say_what_helps(local, model, tmp_path):
    from llamafactory_obs.probe.backends.local import LocalModels

    taken, _ = adapter(model, tmp_path / "checkpoint-1", 1)
    with pytest.raises(Refused, match="--model"), LocalModels(str(tmp_path / "none"), "cpu").open(taken):
        pass
    with pytest.raises(Refused, match="--model"), LocalModels(None, "cpu").open(None):
        pass
    from tiny import tiny_model

    other = tiny_model(tmp_path / "other", layers=1)
    with pytest.raises(Refused, match="--model"), LocalModels(str(other), "cpu").open(taken):
        pass
    assert ask(local, taken)[0].ids, "the failure left nothing behind"


def test_the_gpu_is_taken_only_where_much_is_left_of_it(model, monkeypatch):
    from llamafactory_obs.errors import ConfigError
    from llamafactory_obs.probe.backends import device

    gib = 1 << 30
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "weights_bytes", lambda name: 8 * gib)
    for free, total, wanted in [(10, 24, "cpu"), (17, 24, "cpu"), (18, 24, "cuda"), (30, 80, "cpu"), (32, 80, "cuda")]:
        monkeypatch.setattr(device, "_memory", lambda free=free, total=total: (free * gib, total * gib))
        assert device.pick_device("auto", "m")[0] == wanted, (free, total)
    monkeypatch.setattr(device, "_memory", lambda: None)
    assert device.pick_device("auto", "m")[0] == "cpu"
    monkeypatch.setattr(device, "weights_bytes", lambda name: None)
    assert device.pick_device("auto", "m")[0] == "cpu" and device.pick_device("cpu", None) == ("cpu", "as asked")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device.pick_device("cuda", "m")[0] == "cuda"
    with pytest.raises(ConfigError, match="1 CUDA devices"):
        device.pick_device("cuda:1", "m")


def test_an_empty_adapter_is_refused(local, model, tmp_path):
    from safetensors.torch import save_file

    taken, _ = adapter(model, tmp_path / "checkpoint-1", 1)
    save_file({}, taken.path / "adapter_model.safetensors")
    with pytest.raises(Refused, match="none of LoRA"):
        ask(local, taken)


def test_an_adapter_that_learned_nothing_is_noted(local, model, tmp_path):
    from peft import LoraConfig, get_peft_model

    get_peft_model(load(model), LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "checkpoint-1")
    taken = Taken("checkpoint-1", 1, "adapter", tmp_path / "checkpoint-1", "c", "s", ())
    made, notes = ask(local, taken)
    assert made.ids == by_hand(load(model), PROMPT, [2], 12) and "lora_B is all zero" in notes[0]
