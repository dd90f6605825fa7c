"""Worker processes against the cores that this machine grants."""

from ...identity.hardware import hardware_identity
from ...identity.unknown import Unknowns
from ..result import ERROR, FAIL, PASS, WARN, Check
from .effective import Effective


def check_workers(run: Effective) -> list[Check]:
    """`dataloader_num_workers`, `preprocessing_num_workers`, and workers of a stream."""
    hardware = hardware_identity(Unknowns())
    known = [hardware[name] for name in ("cores_usable", "cpu_limit", "cores_logical") if hardware[name]]
    if not known:
        return [Check("workers", ERROR, None, None, "how many cores there are is not known"), *_stream(run)]
    return [_loading(run, min(known)), _preparing(run, min(known)), *_stream(run)]


def _loading(run: Effective, cores: float) -> Check:
    each, ranks = run.get("dataloader_num_workers"), run.local_processes
    wanted = each * ranks
    of = f" ({ranks} processes with {each})" if ranks > 1 else ""
    text = f"dataloader_num_workers: {wanted} worker processes{of} on {cores:g} cores of this machine"
    if wanted > cores:
        fix = f"dataloader_num_workers: {int(cores // ranks)}"
        return Check("workers", WARN, wanted, cores, f"{text}: they take turns and slow the training", fix)
    if not each:
        text = f"dataloader_num_workers: 0, the training process reads its own batches ({cores:g} cores here)"
    return Check("workers", PASS, wanted, cores, text)


def _preparing(run: Effective, cores: float) -> Check:
    number = run.get("preprocessing_num_workers") or 1
    text = f"preprocessing_num_workers: {number} on {cores:g} cores of this machine"
    if number > cores:
        fix = f"preprocessing_num_workers: {max(int(cores), 1)}"
        return Check("preprocessing_workers", WARN, number, cores, f"{text}: no faster, more memory", fix)
    return Check("preprocessing_workers", PASS, number, cores, text)


def _stream(run: Effective) -> list[Check]:
    """LlamaFactory 0.9.5 splits a local file into `dataloader_num_workers` parts: with 0 of them there is no row."""
    if not run.get("streaming"):
        return []
    from llamafactory.data.parser import get_dataset_list

    names = [*(run.get("dataset") or []), *(run.get("eval_dataset") or [])]
    sources = get_dataset_list(names, run.get("dataset_dir"))
    local = [name for name, source in zip(names, sources, strict=True) if source.load_from == "file"]
    number = run.get("dataloader_num_workers")
    if local and not number:
        text = f"streaming over the local file of {', '.join(local)} with dataloader_num_workers: 0 yields no row"
        text += ": training ends in a StopIteration"
        return [Check("stream_workers", FAIL, 0, 1, text, "dataloader_num_workers: 1, or streaming: false")]
    return [Check("stream_workers", PASS, number, 1 if local else 0, f"a stream with {number} workers has rows")]
