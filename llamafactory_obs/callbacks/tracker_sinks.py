"""How one tracker takes numbers, alerts and the run's identity: wandb, TensorBoard, SwanLab, trackio, MLflow.

Each sink writes into the run that transformers' integration has opened. `log(values, step)` may come late and for a
step that lies behind the current one; `alert(title, text, level, step)`; `identify(identity)`; `run` names that run,
for whoever wants to continue it.
"""

import json
import re
import time


class Wandb:
    """On a step axis of its own, `obs/step`, the Trainer's global step: with wandb's own `step=` a value for step 200
    that comes when training is at 249 would be dropped (wandb issue 10628). Alerts are `wandb.alert`."""

    def __init__(self, callback):
        self._run = callback._wandb.run
        self._defined: set[str] = set()

    def log(self, values: dict[str, float], step: int) -> None:
        for name in values.keys() - self._defined:
            self._run.define_metric(name, step_metric="obs/step")
            self._defined.add(name)
        self._run.log({**values, "obs/step": step})

    @property
    def run(self) -> dict:
        run = self._run
        return {"id": run.id, "project": run.project, "entity": run.entity or None, "offline": bool(run.offline)}

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        self._run.alert(title=title[:63], text=f"step {step}: {text}", level=level.upper())

    def identify(self, identity: dict) -> None:
        self._run.config.update({"llamafactory_obs": identity}, allow_val_change=True)


class TensorBoard:
    """One event per step for all values; alerts and identity as texts."""

    def __init__(self, callback):
        self._callback = callback
        self._folder = callback.tb_writer.log_dir

    @property
    def run(self) -> dict:
        return {"dir": str(self._folder)}

    def _write(self, write) -> None:
        from torch.utils.tensorboard import SummaryWriter

        open_one = self._callback.tb_writer
        writer = open_one or SummaryWriter(self._folder)  # the Trainer's is closed at the end of training
        write(writer)
        if open_one is None:
            writer.close()

    def log(self, values: dict[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        entries = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(lambda writer: writer.file_writer.add_summary(Summary(value=entries), step))

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        self._write(lambda writer: writer.add_text(f"obs/alerts/{level}/{title}", text, step))

    def identify(self, identity: dict) -> None:
        text = "```json\n" + json.dumps(identity, indent=1, ensure_ascii=False) + "\n```"
        self._write(lambda writer: writer.add_text("obs/identity", text))


class SwanLab:
    """Alerts are texts: SwanLab's own notifications are plug-ins that the user connects."""

    def __init__(self, callback):
        import swanlab

        self._swanlab = swanlab

    @property
    def run(self) -> dict:
        return {"id": self._swanlab.get_run().id}

    def log(self, values: dict[str, float], step: int) -> None:
        self._swanlab.log(values, step=step)

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        said = self._swanlab.Text(text, caption=level)
        self._swanlab.log({f"obs/alerts/{title}": said}, step=step)

    def identify(self, identity: dict) -> None:
        self._swanlab.config.update({"llamafactory_obs": identity})


class Trackio:
    """The Trainer logs without a step there, so its rows and ours share the axis `train/global_step`. Alerts are
    trackio's own. Its config is sent with the first row: what is known of the identity later is in `run.json` only."""

    def __init__(self, callback):
        self._trackio = callback._trackio

    def _run(self):
        return self._trackio.context_vars.current_run.get()  # None once training has ended

    @property
    def run(self) -> dict:
        return {"name": self._run().name, "project": self._run().project}

    def log(self, values: dict[str, float], step: int) -> None:
        if self._run() is not None:
            self._trackio.log({**values, "train/global_step": step}, step=step)

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        if self._run() is not None:
            self._run().alert(title, text, level=self._trackio.AlertLevel[level.upper()], step=step)

    def identify(self, identity: dict) -> None:
        if self._run() is not None:
            self._run().config["llamafactory_obs"] = identity


class MLflow:
    """By the run's id: once the Trainer has ended it, MLflow's fluent calls would open a new one. MLflow has no alerts:
    they are tags."""

    #: characters that MLflow refuses in a metric's or tag's name
    _REFUSED = re.compile(r"[^0-9A-Za-z_\-\. :/]")

    def __init__(self, callback):
        self._mlflow = callback._ml_flow
        info = self._mlflow.active_run().info
        self._id = info.run_id
        self._client = self._mlflow.MlflowClient()
        #: `experiment` is its id; the tracking address may hold a password and is not kept
        self.run = {"id": info.run_id, "experiment": info.experiment_id}

    def log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(self._REFUSED.sub("_", name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics, synchronous=False)

    def alert(self, title: str, text: str, level: str, step: int) -> None:
        name = self._REFUSED.sub("_", f"obs.alert.{step}.{title}")
        self._client.set_tag(self._id, name, f"{level}: {text}"[:5000], synchronous=False)

    def identify(self, identity: dict) -> None:
        self._client.log_dict(self._id, identity, "llamafactory_obs/identity.json")
        for name, value in _flat(identity, "obs"):
            self._client.set_tag(self._id, self._REFUSED.sub("_", name), value[:5000], synchronous=False)


def _flat(values: dict, prefix: str):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", str(value)


#: class name of transformers' integration -> its sink
SINKS = {
    "WandbCallback": Wandb,
    "TensorBoardCallback": TensorBoard,
    "SwanLabCallback": SwanLab,
    "TrackioCallback": Trackio,
    "MLflowCallback": MLflow,
}
