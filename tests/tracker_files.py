"""What stands in a tracker's own offline files: every number with its step, the alerts, the identity."""

import json
import sqlite3
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Found:
    """`series`: name -> [(step, value)] in the order of the file; `alerts`: [(step, title, text)]."""

    series: dict = field(default_factory=lambda: defaultdict(list))
    alerts: list = field(default_factory=list)
    identity: dict | None = None


def log_records(data: bytes) -> list[bytes]:
    """The records of a `.wandb` or `.swanlab` file: LevelDB's log format after 7 bytes, blocks of 32 KiB."""
    records, part, at = [], b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(part)
            part = b""
    return records


def tensorboard(folder: Path) -> Found:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = Found()
    (log,) = {path.parent for path in folder.rglob("events.out.tfevents*")}
    events = EventAccumulator(str(log), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    for name in events.Tags()["scalars"]:
        found.series[name] = [(event.step, event.value) for event in events.Scalars(name)]
    for name in events.Tags()["tensors"]:
        for event in events.Tensors(name):
            text = event.tensor_proto.string_val[0].decode()
            if name.startswith("obs/alerts/"):
                found.alerts.append((event.step, name.split("/", 3)[3].removesuffix("/text_summary"), text))
            elif name.startswith("obs/identity"):
                found.identity = json.loads(text.strip("`").removeprefix("json"))
    return found


def wandb(folder: Path) -> Found:
    from wandb.proto import wandb_internal_pb2

    found = Found()
    (file,) = folder.rglob("run-*.wandb")
    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            step = items.pop("obs/step", items.get("train/global_step"))
            for name, value in items.items():
                found.series[name].append((step, value))
        if record.HasField("alert"):
            step, _, text = record.alert.text.partition(": ")
            found.alerts.append((int(step.removeprefix("step ")), record.alert.title, text))
        for config in (record.config, record.run.config):
            for item in config.update:
                if item.key == "llamafactory_obs":
                    found.identity = json.loads(item.value_json)
        if record.HasField("metric") and record.metric.name:
            found.series[f"axis of {record.metric.name}"] = [(None, record.metric.step_metric)]
    return found


def swanlab(folder: Path) -> Found:
    from swanlab.proto.swanlab.record.v1 import record_pb2

    found = Found()
    (file,) = folder.rglob("run-*.swanlab")
    for data in log_records(file.read_bytes()):
        record = record_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("data") if record.DESCRIPTOR.oneofs_by_name.get("data") else None
        if kind is None:
            kind = next((name for name in ("scalar", "media") if record.HasField(name)), "")
        if kind == "scalar":
            found.series[record.scalar.key].append((record.scalar.step, record.scalar.value.number))
        elif kind == "media" and record.media.key.startswith("obs/alerts/"):
            name = record.media.value.items[0].filename
            text = next(file.parent.rglob(name)).read_text(encoding="utf-8")
            found.alerts.append((record.media.step, record.media.key.removeprefix("obs/alerts/"), text))
    import yaml

    config = yaml.safe_load(next(file.parent.rglob("config.yaml")).read_text(encoding="utf-8"))
    found.identity = config["llamafactory_obs"]["value"]
    return found


def trackio(folder: Path) -> Found:
    found = Found()
    for file in folder.rglob("*.db"):
        with sqlite3.connect(file) as base:
            tables = {name for (name,) in base.execute("select name from sqlite_master where type='table'")}
            for step, metrics in base.execute("select step, metrics from metrics order by id"):
                metrics = json.loads(metrics)
                for name, value in metrics.items():
                    found.series[name].append((metrics.get("train/global_step", step), value))
            if "alerts" in tables:
                found.alerts += base.execute("select step, title, text from alerts").fetchall()
            for (config,) in base.execute("select config from configs"):
                found.identity = json.loads(config).get("llamafactory_obs")
    return found


def mlflow(folder: Path) -> Found:
    from mlflow import MlflowClient, flush_async_logging

    flush_async_logging()  # as MLflow itself does at the end of the process
    found = Found()
    client = MlflowClient(f"file:{folder}")
    run = client.search_runs(["0"], order_by=["attributes.start_time ASC"])[0]  # LlamaFactory's evaluation has its own
    for name in run.data.metrics:
        found.series[name] = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
    for name, text in run.data.tags.items():
        if name.startswith("obs.alert."):
            step, _, title = name.removeprefix("obs.alert.").partition(".")
            found.alerts.append((int(step), title, text.partition(": ")[2]))
    found.identity = json.loads(next(folder.rglob("identity.json")).read_text(encoding="utf-8"))
    return found
