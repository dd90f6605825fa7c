"""Deletes a checkpoint so that no half of one is ever found: renamed aside first, then removed.

LlamaFactory resumes from whatever is called `checkpoint-N`, and transformers rotates whatever begins with
`checkpoint-`. The name aside is neither, so a kill in between leaves nothing that anybody takes for a checkpoint.
"""

import os
import re
import shutil
import uuid
from pathlib import Path

from ..probe.scan import step_of
from .verify_save import identity

_ASIDE = re.compile(r"\.deleting-checkpoint-\d+-[0-9a-f]{8}")


def move_aside(folder: Path, judged: tuple | None) -> Path | None:
    """Take its name away, in one operation of the file system.

    Args:
        folder: `checkpoint-N`, itself and not a link to one.
        judged: the `identity` of the save that was judged.

    Returns:
        Where it lies now; None where it is gone, or is another one by now: then nothing was done.

    Raises:
        OSError: it cannot be renamed.
    """
    if step_of(folder.name) is None or judged is None or identity(folder) != judged:
        return None
    aside = folder.with_name(f".deleting-{folder.name}-{uuid.uuid4().hex[:8]}")
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        return None
    return aside


def leftovers(output_dir: Path) -> list[Path]:
    """What a killed process had moved aside and not removed."""
    try:
        with os.scandir(output_dir) as entries:
            names = [one.name for one in entries if one.is_dir(follow_symlinks=False) and _ASIDE.fullmatch(one.name)]
    except OSError:
        return []
    return [output_dir / name for name in sorted(names)]


def remove(aside: Path) -> str:
    """Remove what was moved aside. Links in it are removed, never followed. Returns why it is not all gone; or ""."""
    failed: list[str] = []

    def note(function, path, error) -> None:
        failed.append(f"{os.path.basename(path)}: {getattr(error[1], 'strerror', None) or error[1]}")

    shutil.rmtree(aside, onerror=note)
    return failed[0] if failed and aside.exists() else ""
