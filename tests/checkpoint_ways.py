"""The ways in which a checkpoint is broken, each with the verdict and the words that must be said of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from checkpoint_damage import (
    ADAPTER,
    MODEL,
    as_bin,
    begin,
    beside,
    bf16,
    cut,
    elsewhere,
    folder,
    header,
    instead,
    link,
    nan,
    no_state,
    optimizer,
    other_step,
    overlap,
    pickle,
    pipe,
    remove,
    shards,
    smaller,
    sparse,
    stale_shard,
    tensors,
    twice,
    wider,
    write,
    wrong_index,
)
from checkpoint_folder import edit

BROKEN, WARM, EXACT = "broken", "warm start only", "resumes exactly"


@dataclass(frozen=True)
class Damage:
    """One way.

    Attributes:
        of: lora | full: the checkpoint that is damaged.
        do: damages the folder.
        verdict: that must be given.
        says: words that must stand in its reasons or notes.
        serves, resumes: what it is still good for; None: not asked.
    """

    of: str
    do: Callable[[Path], object]
    verdict: str
    says: tuple[str, ...]
    serves: bool | None = None
    resumes: bool | None = None


WAYS: dict[str, Damage] = {
    "weights_truncated": Damage("lora", cut(ADAPTER), BROKEN, (ADAPTER, "header says"), False, False),
    "weights_empty": Damage("lora", write(ADAPTER, b""), BROKEN, (ADAPTER, "0 bytes"), False, False),
    "weights_40_bytes": Damage(
        "lora",
        write(ADAPTER, (32).to_bytes(8, "little") + b'{"__metadata__":{"format":"pt"}}'),
        BROKEN,
        (ADAPTER, "no tensor"),
        False,
        False,
    ),
    "weights_header_beyond_file": Damage(
        "lora", write(ADAPTER, (10**6).to_bytes(8, "little") + b"{}" * 50), BROKEN, (ADAPTER, "header"), False, False
    ),
    "weights_pickle_as_safetensors": Damage("lora", pickle(ADAPTER), BROKEN, (ADAPTER,), False, False),
    "weights_malicious_bin": Damage(
        "lora", pickle("adapter_model.bin", ADAPTER), BROKEN, ("adapter_model.bin",), False
    ),
    "weights_nan": Damage("lora", tensors(ADAPTER, nan("lora_A")), BROKEN, (ADAPTER, "NaN"), False, False),
    "weights_lora_b_zero": Damage(
        "lora",
        tensors(ADAPTER, lambda t: {k: v * 0 if "lora_B" in k else v for k, v in t.items()}),
        BROKEN,
        (ADAPTER, "lora_B are zero"),
        False,
    ),
    "weights_other_rank": Damage(
        "lora",
        lambda f: edit(f / "adapter_config.json", lambda c: c.update(r=16)),
        BROKEN,
        ("rank 4", "says 16"),
        False,
    ),
    "weights_other_architecture": Damage(
        "lora",
        tensors(ADAPTER, lambda t: {k.replace("model.layers", "transformer.h"): v for k, v in t.items()}),
        BROKEN,
        (ADAPTER, "transformer.h"),
        False,
    ),
    "weights_wider_base": Damage("lora", tensors(ADAPTER, wider), BROKEN, ("is for a weight of", "64"), False),
    "weights_deeper_base": Damage(
        "lora",
        tensors(ADAPTER, lambda t: {k.replace("layers.2", "layers.9"): v for k, v in t.items()}),
        BROKEN,
        ("not in the base model", "layers.9"),
        False,
    ),
    "weights_half_a_module": Damage(
        "lora",
        tensors(ADAPTER, lambda t: {k: v for k, v in t.items() if "layers.1.mlp.up_proj.lora_B" not in k}),
        BROKEN,
        ("up_proj", "other half"),
        False,
    ),
    "weights_a_layer_short": Damage(
        "lora",
        tensors(ADAPTER, lambda t: {k: v for k, v in t.items() if "layers.1." not in k}),
        BROKEN,
        (ADAPTER, "lacks 14"),
        False,
    ),
    "config_torn": Damage("lora", cut("adapter_config.json"), BROKEN, ("adapter_config.json",), False, False),
    "config_missing": Damage("lora", remove("adapter_config.json"), BROKEN, ("adapter_config.json is missing",), False),
    "optimizer_truncated": Damage("lora", cut("optimizer.pt"), BROKEN, ("optimizer.pt",), True, False),
    "optimizer_other_size": Damage("lora", optimizer(smaller), BROKEN, ("optimizer.pt is for",), True, False),
    "optimizer_other_step": Damage("lora", optimizer(other_step), BROKEN, ("optimizer.pt has made 3 steps",), True),
    "optimizer_malicious": Damage("lora", pickle("optimizer.pt"), BROKEN, ("optimizer.pt",), True, False),
    "optimizer_missing": Damage("lora", remove("optimizer.pt"), WARM, ("optimizer.pt is missing",), True, True),
    "optimizer_sparse_terabyte": Damage("lora", sparse("optimizer.pt", 1 << 40), BROKEN, ("optimizer.pt",), True),
    "optimizer_link_to_nothing": Damage(
        "lora", link("optimizer.pt", "/nowhere/o.pt"), WARM, ("link to nothing",), True
    ),
    "scheduler_missing": Damage("lora", remove("scheduler.pt"), WARM, ("scheduler.pt is missing", "both"), True, True),
    "scheduler_is_a_folder": Damage("lora", folder("scheduler.pt"), BROKEN, ("scheduler.pt is a folder",), True, False),
    "rng_missing": Damage("lora", remove("rng_state.pth"), WARM, ("rng_state.pth is missing", "bit-exact"), True, True),
    "rng_of_another_world": Damage(
        "lora",
        lambda f: (f / "rng_state.pth").rename(f / "rng_state_0.pth"),
        WARM,
        ("rng_state_1.pth is missing",),
        True,
    ),
    "rng_torn": Damage("lora", cut("rng_state.pth"), BROKEN, ("rng_state.pth",), True, False),
    "rng_is_a_pipe": Damage("lora", pipe("rng_state.pth"), BROKEN, ("rng_state.pth is a pipe",), True, False),
    "rng_malicious": Damage("lora", pickle("rng_state.pth"), BROKEN, ("rng_state.pth",), True, False),
    "state_missing": Damage(
        "lora", remove("trainer_state.json"), BROKEN, ("trainer_state.json is missing",), True, False
    ),
    "state_empty": Damage(
        "lora", write("trainer_state.json", b""), BROKEN, ("trainer_state.json is empty",), True, False
    ),
    "state_torn": Damage(
        "lora", cut("trainer_state.json"), BROKEN, ("trainer_state.json is no whole JSON",), True, False
    ),
    "state_other_step": Damage(
        "lora",
        lambda f: edit(f / "trainer_state.json", lambda s: s.update(global_step=7)),
        BROKEN,
        ("of step 7",),
        True,
        False,
    ),
    "state_step_a_word": Damage(
        "lora",
        lambda f: edit(f / "trainer_state.json", lambda s: s.update(global_step="10")),
        BROKEN,
        ("trainer_state.json",),
        True,
        False,
    ),
    "state_a_list": Damage(
        "lora", write("trainer_state.json", b"[1, 2]"), BROKEN, ("trainer_state.json",), True, False
    ),
    "state_links_to_itself": Damage(
        "lora", link("trainer_state.json", "trainer_state.json"), BROKEN, ("trainer_state.json",), True, False
    ),
    "state_sparse_terabyte": Damage(
        "lora", sparse("trainer_state.json", 1 << 40), BROKEN, ("trainer_state.json",), True
    ),
    "half_deleted": Damage(
        "lora",
        remove(ADAPTER, "adapter_config.json", "tokenizer.json", "rng_state.pth"),
        BROKEN,
        ("no weights",),
        False,
        False,
    ),
    "cut_off_in_the_weights": Damage("full", no_state, BROKEN, ("model-00002-of-00002.safetensors is missing",), False),
    "tokenizer_torn": Damage("lora", cut("tokenizer.json"), BROKEN, ("tokenizer.json",), False, True),
    "tokenizer_of_another_model": Damage(
        "lora",
        lambda f: edit(f / "tokenizer.json", lambda t: t["model"]["vocab"].update(more=99999)),
        BROKEN,
        ("tokenizer.json has ids up to 99999",),
        False,
    ),
    "arguments_torn": Damage("lora", cut("training_args.bin"), BROKEN, ("training_args.bin",), True, True),
    "folder_links_to_nothing": Damage(
        "lora", instead(lambda f: f.symlink_to("/nowhere/at/all")), BROKEN, ("a link to nothing",), False, False
    ),
    "folder_links_to_itself": Damage("lora", instead(lambda f: f.symlink_to(f.name)), BROKEN, ("link",), False, False),
    "folder_is_a_file": Damage("lora", instead(lambda f: f.write_text("")), BROKEN, ("a file, not a folder",), False),
    "folder_empty": Damage(
        "lora", instead(lambda f: f.mkdir()), BROKEN, ("trainer_state.json is missing",), False, False
    ),
    "model_truncated": Damage("full", cut(MODEL, 0.9), BROKEN, (MODEL,), False, False),
    "model_nan_bf16": Damage("full", tensors(MODEL, bf16), BROKEN, (MODEL, "NaN"), False, False),
    "model_wiped": Damage(
        "full", tensors(MODEL, lambda t: {k: v * 0 for k, v in t.items()}), BROKEN, (MODEL, "nothing but zeros"), False
    ),
    "model_key_missing": Damage(
        "full",
        tensors(MODEL, lambda t: {k: v for k, v in t.items() if "layers.1.mlp.up_proj" not in k}),
        BROKEN,
        (MODEL, "layers.1.mlp.up_proj"),
        False,
    ),
    "model_other_vocabulary": Damage(
        "full",
        tensors(MODEL, lambda t: {k: v[:100] if "embed_tokens" in k else v for k, v in t.items()}),
        BROKEN,
        ("embed_tokens",),
        False,
    ),
    "model_tensors_overlap": Damage("full", header(overlap), BROKEN, (MODEL,), False, False),
    "model_malicious_bin": Damage("full", pickle("pytorch_model.bin", MODEL), BROKEN, ("pytorch_model.bin",), False),
    "model_config_missing": Damage("full", remove("config.json"), BROKEN, ("config.json is missing",), False),
    "model_config_torn": Damage("full", cut("config.json"), BROKEN, ("config.json",), False),
    "shard_missing": Damage(
        "full",
        shards(lambda f, t: (f / max(t.values())).unlink()),
        BROKEN,
        ("model-00002-of-00002.safetensors is missing",),
        False,
    ),
    "shard_truncated": Damage(
        "full", shards(lambda f, t: cut(max(t.values()))(f)), BROKEN, ("model-00002-of-00002.safetensors",), False
    ),
    "shard_index_wrong": Damage("full", shards(wrong_index), BROKEN, ("index.json says",), False),
    "shard_index_torn": Damage(
        "full", shards(lambda f, t: cut("model.safetensors.index.json")(f)), BROKEN, ("index.json",), False
    ),
    "shard_twice": Damage("full", shards(twice), BROKEN, ("two saves were mixed",), False),
    # what transformers and PEFT do not read, or read in place of it
    "state_with_byte_order_mark": Damage(
        "lora", begin("trainer_state.json"), BROKEN, ("trainer_state.json begins with a byte order mark",), True, False
    ),
    "state_utf16": Damage(
        "lora",
        lambda f: (f / "trainer_state.json").write_text((f / "trainer_state.json").read_text(), "utf-16"),
        BROKEN,
        ("trainer_state.json", "byte order mark"),
        True,
        False,
    ),
    "state_of_newer_transformers": Damage(
        "lora",
        lambda f: edit(f / "trainer_state.json", lambda s: s.update(not_yet_made=1)),
        BROKEN,
        ("trainer_state.json has not_yet_made",),
        True,
        False,
    ),
    "config_with_byte_order_mark": Damage(
        "lora", begin("adapter_config.json"), BROKEN, ("adapter_config.json begins with",), False
    ),
    "tokenizer_map_torn": Damage(
        "lora", write("special_tokens_map.json", b'{"a'), BROKEN, ("special_tokens_map.json is no whole",), False, True
    ),
    "model_beside_adapter": Damage("lora", beside(MODEL), BROKEN, (MODEL, "a resume reads that"), True, False),
    "adapter_in_folder_beside": Damage(
        "lora", beside(f"backup/{ADAPTER}"), BROKEN, (f"backup/{ADAPTER}", "a resume reads that"), True, False
    ),
    # fine, and said to be so
    "fine_adapter_bin": Damage("lora", as_bin, EXACT, (), True, True),
    "fine_shards_bin": Damage("full", shards(as_bin), EXACT, (), True, True),
    "fine_windows_line_ends": Damage(
        "lora",
        lambda f: [one.write_bytes(one.read_bytes().replace(b"\n", b"\r\n")) for one in f.glob("*.json")],
        EXACT,
        (),
        True,
        True,
    ),
    "fine_generation_torn": Damage(
        "full", cut("generation_config.json"), EXACT, ("generation_config.json is no whole JSON",), True, True
    ),
    "fine_adapter": Damage("lora", lambda f: None, EXACT, (), True, True),
    "fine_model": Damage("full", lambda f: None, EXACT, (), True, True),
    "fine_sharded": Damage("full", shards(lambda f, t: None), EXACT, (), True, True),
    "fine_linked_weights": Damage("lora", elsewhere, EXACT, (), True, True),
    "fine_no_tokenizer": Damage(
        "lora", remove("tokenizer.json", "tokenizer_config.json"), EXACT, ("no tokenizer",), True, True
    ),
    "fine_stale_shard": Damage("full", shards(stale_shard), EXACT, ("model-00003-of-00003",), True, True),
}
