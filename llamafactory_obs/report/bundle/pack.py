"""Collects, cleans, hashes and packs."""

import json
import os
import re
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

from ... import __version__
from ...diagnosis.judge import judge
from ...diagnosis.result import Diagnosis
from ...errors import ConfigError
from ...identity.files import sha256_file
from ...identity.redact import redact
from ...output_file import check_output
from ...record.schema import FOLDER, PREFLIGHT, PROBE, RUN, UNSENT
from ...summary import Loaded, Price, RunSummary, summarize
from ...summary.identity_facts import pick
from ...summary.kept import gates_place
from ...summary.price import priced
from ..markdown import markdown
from ..page import render
from . import archive
from .clean import copy_clean
from .data_card import data_card
from .failed import failed_probes, failed_samples
from .verify import KIND, MANIFEST, read_manifest
from .weights import weights_of

#: of the output folder: what evaluation and prediction leave, and the Trainer's own logs
_EVALUATION = ("all_results.json", "train_results.json", "eval_results.json", "predict_results.json")
_EVALUATION += ("trainer_log.jsonl", "trainer_state.json", "generated_predictions.jsonl")
_NOT_OURS = re.compile(rf"{re.escape(UNSENT.removesuffix('.jsonl'))}.*|\..*|{PROBE}|control|archive")


def check_bundle(path: Path) -> Path:
    """Where a bundle may be written.

    Raises:
        ConfigError: it cannot be written, or something that is no bundle of ours stands there.
    """
    return check_output(path, kind="bundle", ours=_is_ours)


def pack(loaded: Loaded, price: Price | None, target: Path) -> dict:
    """Write the bundle.

    Args:
        price: for the sheet in it; None for what the run's config says.

    Returns:
        `{"path", "files", "bytes", "manifest_sha256", "weights", "whole": True}`.

    Raises:
        ConfigError: as `check_bundle`.
    """
    target = check_bundle(target)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        try:
            return _pack(_without_secrets(loaded), price, target, Path(scratch))
        except OSError as error:
            raise ConfigError(f"{target}: cannot be written ({error.strerror or error})") from None


def _is_ours(target: Path) -> bool:
    try:
        return read_manifest(target).get("kind") == KIND
    except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error):
        return False


def _without_secrets(loaded: Loaded) -> Loaded:
    """What the sheet is made from: its words are the record's, and a page cannot be cleaned afterwards."""
    curves = loaded.curves
    cleaned = {name: redact(getattr(curves, name)) for name in ("events", "probes", "run", "settings", "notes")}
    return replace(loaded, curves=replace(curves, **cleaned))


def _pack(loaded: Loaded, price: Price | None, target: Path, scratch: Path) -> dict:
    summary, diagnosis = summarize(loaded), judge(loaded.curves)
    if price is not None:
        summary = priced(summary, price)
    inside = scratch / "run"
    inside.mkdir()
    cleaned = _copies(loaded, inside)
    _written(loaded, summary, diagnosis, inside)
    names = sorted(str(file.relative_to(inside).as_posix()) for file in inside.rglob("*") if file.is_file())
    files = {name: {"sha256": sha256_file(inside / name), "bytes": (inside / name).stat().st_size} for name in names}
    weights = weights_of(loaded.output_dir, loaded.curves.checkpoints, summary.going)
    manifest = {
        "kind": KIND,
        "llamafactory_obs": __version__,
        "run": summary.brief.run_name or loaded.output_dir.resolve().name,
        "steps": summary.steps,
        "so_far": summary.going,
        "files": files,
        "weights": weights,
        "secrets_replaced": {name: count for name, count in sorted(cleaned.items()) if count},
    }
    _dump(inside / MANIFEST, manifest)
    root = re.sub(r"[^\w.\-]+", "_", manifest["run"]).strip(".") or "run"
    packed = scratch / target.name
    archive.write(packed, root, [(name, inside / name) for name in (MANIFEST, *names)])
    size = packed.stat().st_size
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(packed, 0o666 & ~mask)
    os.replace(packed, target)
    return {
        "path": str(target),
        "files": len(files),
        "bytes": size,
        "manifest_sha256": sha256_file(inside / MANIFEST),
        "weights": weights,
        "whole": True,
    }


def _copies(loaded: Loaded, inside: Path) -> dict[str, int]:
    """The record and what evaluation left, cleaned; name -> lines that held a secret."""
    sources = {name: loaded.output_dir / name for name in _EVALUATION}
    if loaded.record is not None:
        sources[f"{FOLDER}/{PREFLIGHT}"] = gates_place(loaded)
        for file in sorted(loaded.record.iterdir()):
            if file.is_file() and not _NOT_OURS.fullmatch(file.name) and file.suffix in (".json", ".jsonl"):
                sources[f"{FOLDER}/{file.name}"] = file
    elif loaded.path.is_file():
        sources[loaded.path.name] = loaded.path
    return {name: copy_clean(file, inside / name) for name, file in sources.items() if file.is_file()}


def _written(loaded: Loaded, summary: RunSummary, diagnosis: Diagnosis, inside: Path) -> None:
    """What is made for the bundle: config, data card, failed samples, the sheet."""
    import yaml

    run = loaded.curves.run
    (inside / "config").mkdir()
    (inside / "failed").mkdir()
    given = pick(run, "config", "given") or dict(loaded.curves.settings)
    (inside / "config" / "run.yaml").write_text(
        yaml.safe_dump(redact(given), sort_keys=False, allow_unicode=True), encoding="utf-8", errors="replace"
    )
    _dump(inside / "config" / "resolved.json", redact(pick(run, "config", "resolved") or {}))
    _dump(inside / "data_card.json", redact(data_card(loaded, summary)))
    for name, rows in (("probes", failed_probes(loaded)), ("samples", failed_samples(loaded))):
        lines = "".join(json.dumps(redact(row), ensure_ascii=False) + "\n" for row in rows)
        (inside / "failed" / f"{name}.jsonl").write_text(lines, encoding="utf-8", errors="replace")
    if run and not (inside / FOLDER / RUN).is_file():
        _dump(inside / FOLDER / RUN, redact(run))
    curves = loaded.curves
    (inside / "sheet.md").write_text(markdown(summary, diagnosis, curves, utc=True), encoding="utf-8", errors="replace")
    (inside / "sheet.html").write_text(render(summary, diagnosis, curves, utc=True), encoding="utf-8", errors="replace")


def _dump(file: Path, value: object) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", errors="replace")
