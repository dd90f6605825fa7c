"""Worker processes against the cores that this machine grants."""

from ... import texts
from ...identity.hardware import hardware_identity
from ...identity.unknown import Unknowns
from ..result import ERROR, FAIL, PASS, WARN, Check
from .effective import Effective


def check_workers(run: Effective) -> list[Check]:
    """`dataloader_num_workers`, `preprocessing_num_workers`, and workers of a stream."""
    hardware = hardware_identity(Unknowns())
    known = [hardware[name] for name in ("cores_usable", "cpu_limit", "cores_logical") if hardware[name]]
    if not known:
        return [Check("workers", ERROR, None, None, texts.text("ahead.workers.unknown")), *_stream(run)]
    return [_loading(run, min(known)), _preparing(run, min(known)), *_stream(run)]


def _loading(run: Effective, cores: float) -> Check:
    each, ranks = run.get("dataloader_num_workers"), run.local_processes
    wanted = each * ranks
    of = texts.text("ahead.workers.each", ranks=ranks, each=each) if ranks > 1 else ""
    text = texts.text("ahead.workers.workers", wanted=wanted, of=of, cores=cores)
    if wanted > cores:
        fix = f"dataloader_num_workers: {int(cores // ranks)}"
        return Check("workers", WARN, wanted, cores, texts.text("ahead.workers.turns", text=text), fix)
    if not each:
        text = texts.text("ahead.workers.own", cores=cores)
    return Check("workers", PASS, wanted, cores, text)


def _preparing(run: Effective, cores: float) -> Check:
    number = run.get("preprocessing_num_workers") or 1
    text = texts.text("ahead.workers.preprocessing", number=number, cores=cores)
    if number > cores:
        fix = f"preprocessing_num_workers: {max(int(cores), 1)}"
        return Check(
            "preprocessing_workers", WARN, number, cores, texts.text("ahead.workers.no_faster", text=text), fix
        )
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
        text = texts.text("ahead.workers.no_row", names=", ".join(local))
        text += texts.text("ahead.workers.stops")
        return [Check("stream_workers", FAIL, 0, 1, text, texts.text("ahead.workers.cure"))]
    return [
        Check("stream_workers", PASS, number, 1 if local else 0, texts.text("ahead.workers.has_rows", number=number))
    ]
