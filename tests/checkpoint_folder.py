"""Copies of a real checkpoint at any step, to damage, and a listing that shows whether one was touched."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path


def plant(source: Path, folder: Path, step: int) -> Path:
    """`checkpoint-<step>` as the Trainer would have saved it at that step: state, optimizer and scheduler agree."""
    import torch

    into = folder / f"checkpoint-{step}"
    shutil.copytree(source, into)
    for name in ("optimizer.pt", "scheduler.pt"):
        if (into / name).exists():
            held = torch.load(into / name, weights_only=True)
            for one in held.get("state", {}).values():
                one["step"].fill_(step)
            if "last_epoch" in held:
                held["last_epoch"] = step
            torch.save(held, into / name)
    edit(into / "trainer_state.json", lambda state: state.update(global_step=step, max_steps=1000))
    at_rest(into)
    return into


def edit(file: Path, change) -> None:
    """Change one JSON file in place."""
    held = json.loads(file.read_text())
    change(held)
    file.write_text(json.dumps(held))


def rewrite(file: Path, change) -> None:
    """Change the tensors of one safetensors file."""
    from safetensors.torch import load_file, save_file

    save_file({k: v.contiguous() for k, v in change(load_file(file)).items()}, file, metadata={"format": "pt"})


def shard(folder: Path, parts: int = 2) -> dict[str, str]:
    """Split `model.safetensors` into shards with an index; returns tensor -> shard."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    table = {}
    for part in range(parts):
        name = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        mine = names[part::parts]
        save_file({one: tensors[one] for one in mine}, folder / name, metadata={"format": "pt"})
        table |= dict.fromkeys(mine, name)
    index = {"metadata": {"total_size": 1}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return table


def at_rest(folder: Path) -> None:
    """As if it was saved an hour ago, the state last."""
    if not folder.is_dir():
        return
    state, then = folder / "trainer_state.json", time.time() - 3600
    for path in (*(one for one in folder.iterdir() if one != state), state, folder):
        if path.exists() and not path.is_symlink():
            os.utime(path, (then, then))


def listing(folder: Path) -> dict[str, tuple]:
    """Everything under a folder: kind, mode, size, mtime, where a link leads, and what files of ordinary size hold."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            path = Path(place) / name
            entry = path.lstat()
            held = os.readlink(path) if path.is_symlink() else ""
            if path.is_file() and not path.is_symlink() and entry.st_size < 1 << 24:
                held = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (entry.st_mode, entry.st_size, entry.st_mtime_ns, entry.st_ino, held)
    return found
