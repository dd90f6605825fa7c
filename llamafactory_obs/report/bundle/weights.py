"""The fingerprint of the weights that a run made: of the final model, else of its newest checkpoint."""

import re
from pathlib import Path

from ...identity.files import hash_files

_WEIGHTS = re.compile(r"(adapter_model|model|pytorch_model|value_head)([.-].*)?\.(safetensors|bin)")


def weights_of(output_dir: Path, checkpoints: dict[int, Path], going: bool) -> dict:
    """Which files hold the weights, and their SHA-256.

    Args:
        checkpoints: step -> folder, those that lie there.
        going: training goes on: what lies in `output_dir` itself may be of an earlier run.

    Returns:
        `{"folder" (relative to output_dir), "step" (None: the final model), "sha256", "files"}` as
        `identity.files.hash_files` makes it, or `{"why"}` where there are none.
    """
    places: list[tuple[int | None, Path]] = [] if going else [(None, output_dir)]
    places += [(step, folder) for step, folder in sorted(checkpoints.items(), reverse=True)]
    why = "no weights in the output folder and no checkpoint on disk"
    for step, folder in places:
        names = weight_files(folder)
        if names:
            try:
                hashed = hash_files(folder, names)
            except OSError as error:
                why = f"{folder.name} cannot be read ({error.strerror})"
                continue
            return {"folder": "." if step is None else folder.name, "step": step, **hashed}
    return {"why": why}


def weight_files(folder: Path) -> list[str]:
    """Names of the files with weights in a folder."""
    try:
        return sorted(file.name for file in folder.iterdir() if _WEIGHTS.fullmatch(file.name) and file.is_file())
    except OSError:
        return []
