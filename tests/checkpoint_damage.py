"""What can happen to a checkpoint: functions that damage one, for the table in `checkpoint_ways.py`."""

import json
import os
import shutil
from pathlib import Path

from checkpoint_folder import edit, rewrite, shard

ADAPTER, MODEL = "adapter_model.safetensors", "model.safetensors"


class Evil:
    """What a pickle may carry; it would leave a file in the current folder."""

    def __reduce__(self):
        return (os.system, ("touch evil",))


def cut(name: str, keep: float = 0.5):
    return lambda folder: os.truncate(folder / name, int((folder / name).stat().st_size * keep))


def write(name: str, raw: bytes):
    return lambda folder: (folder / name).write_bytes(raw)


def begin(name: str, raw: bytes = b"\xef\xbb\xbf"):
    """Put bytes before a file's own: Windows' mark of UTF-8."""
    return lambda folder: (folder / name).write_bytes(raw + (folder / name).read_bytes())


def beside(name: str):
    """Another file of tensors, where a resume looks first."""

    def do(folder: Path):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / ADAPTER, folder / name)

    return do


def as_bin(folder: Path, table: dict[str, str] | None = None):
    """The weights as torch's files, as transformers 4 wrote them; shards where there is a table of them."""
    import torch
    from safetensors.torch import load_file

    for file in folder.glob("*model*.safetensors"):
        name = file.name if table is None else f"pytorch_{file.name}"
        torch.save(load_file(file), folder / name.replace(".safetensors", ".bin"))
        file.unlink()
    if table is not None:
        (folder / "model.safetensors.index.json").unlink()
        new = {key: f"pytorch_{name}".replace(".safetensors", ".bin") for key, name in table.items()}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": new}))


def remove(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def link(name: str, to: str):
    def do(folder: Path):
        (folder / name).unlink()
        (folder / name).symlink_to(to)

    return do


def pickle(name: str, take: str | None = None):
    def do(folder: Path):
        import torch

        torch.save({"x": Evil()}, folder / name)
        if take:
            (folder / take).unlink()

    return do


def tensors(name: str, change):
    return lambda folder: rewrite(folder / name, change)


def nan(wanted: str):
    def change(tensors):
        name = next(one for one in tensors if wanted in one)
        tensors[name].view(-1)[3] = float("nan")
        return tensors

    return change


def bf16(tensors):
    import torch

    return nan("down_proj")({name: one.to(torch.bfloat16) for name, one in tensors.items()})


def wider(tensors):
    import torch

    return {k: torch.cat([v, v], 1) if "lora_A" in k and v.shape[1] == 32 else v for k, v in tensors.items()}


def optimizer(change):
    def do(folder: Path):
        import torch

        held = torch.load(folder / "optimizer.pt", weights_only=True)
        change(held)
        torch.save(held, folder / "optimizer.pt")

    return do


def smaller(held):
    for one in held["state"].values():
        one["exp_avg"], one["exp_avg_sq"] = one["exp_avg"][:1].clone(), one["exp_avg_sq"][:1].clone()


def other_step(held):
    for one in held["state"].values():
        one["step"].fill_(3)


def folder(name: str):
    def do(folder: Path):
        (folder / name).unlink()
        (folder / name).mkdir()

    return do


def pipe(name: str):
    def do(folder: Path):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return do


def sparse(name: str, size: int):
    def do(folder: Path):
        (folder / name).unlink()
        with open(folder / name, "wb") as file:
            file.truncate(size)

    return do


def elsewhere(folder: Path):
    away = folder.parent / "elsewhere"
    away.mkdir()
    shutil.move(folder / ADAPTER, away / ADAPTER)
    (folder / ADAPTER).symlink_to(away / ADAPTER)


def instead(make):
    """The checkpoint's folder itself is something else."""

    def do(folder: Path):
        shutil.rmtree(folder)
        make(folder)

    return do


def header(change):
    def do(folder: Path):
        file = folder / MODEL
        raw = file.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        change(header)
        new = json.dumps(header).encode()
        file.write_bytes(len(new).to_bytes(8, "little") + new + raw[8 + length :])

    return do


def overlap(header):
    first, second = [name for name in header if name != "__metadata__"][:2]
    size = header[second]["data_offsets"]
    header[second]["data_offsets"] = [size[0] + 4, size[1] + 4]
    assert first


def shards(change):
    def do(folder: Path):
        change(folder, shard(folder))

    return do


def wrong_index(folder: Path, table: dict):
    names = sorted(set(table.values()))
    name = min(table)
    moved = names[1] if table[name] == names[0] else names[0]
    edit(folder / "model.safetensors.index.json", lambda index: index["weight_map"].update({name: moved}))


def twice(folder: Path, table: dict):
    from safetensors.torch import load_file

    one, other = sorted(set(table.values()))
    first = load_file(folder / one)
    name = min(first)
    rewrite(folder / other, lambda tensors: tensors | {name: first[name]})


def stale_shard(folder: Path, table: dict):
    shutil.copy(folder / min(table.values()), folder / "model-00003-of-00003.safetensors")


def no_state(folder: Path):
    shard(folder)
    remove("model-00002-of-00002.safetensors", "trainer_state.json", "config.json")(folder)
