"""The part of `gpu_check.sh` that trains: a small random Qwen3 on the GPU, each claim checked, one line a claim.

python bench/gpu_check.py [--steps 40]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainerCallback, TrainingArguments

from llamafactory_obs import GradNormSpike, LabelMask, LayerNorms, System, Throughput, Vram, load_record
from llamafactory_obs.callbacks.recorder import Recorder
from llamafactory_obs.gpu.nvml import Nvml

FAILED = []


def claim(text: str, holds: bool, detail: object = "") -> None:
    print(f"{'ok  ' if holds else 'FAIL'}  {text}  {detail}")
    if not holds:
        FAILED.append(text)


def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    shape = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=4096, num_key_value_heads=4, head_dim=64, **shape))


def rows(count: int, length: int) -> list[dict]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 4096, (count, length), generator=generator)
    return [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in ids]


class Watch(TrainerCallback):
    """Beside the recorder: the norms that the Trainer logs, and how late each row was."""

    def __init__(self):
        self.norms, self.late = {}, []

    def on_step_end(self, args, state, control, **kwargs):
        recorder = next(c for c in self.trainer.callback_handler.callbacks if isinstance(c, Recorder))
        if recorder.last.step is not None:
            self.late.append(state.global_step - recorder.last.step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" in logs:
            self.norms[state.global_step] = float(logs["grad_norm"])


def fit(folder: Path, callbacks: list, steps: int, length: int = 512, **arguments) -> Trainer:
    settings = {"logging_steps": 10, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, **arguments}
    options = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=4, bf16=True, **settings)
    trainer = Trainer(model(), options, train_dataset=rows(256, length), callbacks=callbacks)
    for callback in callbacks:
        if isinstance(callback, Watch):
            callback.trainer = trainer
    trainer.train()
    return trainer


def hooks_never_synchronise() -> None:
    """torch raises on a synchronising call in one of our hooks (but for step ends, where the Trainer waits to log)."""
    for name in ("micro_batch", "micro_loss", "gradients", "on_optimizer_step", "on_pre_optimizer_step"):
        real = getattr(Recorder, name)

        def strict(self, *args, real=real, **kwargs):
            torch.cuda.set_sync_debug_mode("error")
            try:
                return real(self, *args, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        setattr(Recorder, name, strict)


def ours() -> list:
    return [
        GradNormSpike(),
        LayerNorms(every=1, weights_every=1),
        LabelMask(),
        Vram(),
        Throughput(),
        System(interval=0.2),
    ]


def system_claims(record) -> None:
    """What `system` says of the card, against nvidia-smi and against what a card can do."""
    columns = {name.removeprefix("system/"): values for name, values in record.steps.items()}
    fields = {"gpu_power_limit_w": "power.limit", "gpu_temperature_c": "temperature.gpu", "sm": "clocks.max.sm"}
    query = f"--query-gpu={','.join(fields.values())}"
    found = subprocess.run(["nvidia-smi", "-i", "0", query, "--format=csv,noheader,nounits"], capture_output=True)
    numbers = dict(zip(fields, map(float, found.stdout.decode().split(",")), strict=True))
    for name, slack in (("gpu_power_limit_w", 0.01), ("gpu_temperature_c", 0.4)):
        mine = columns.get(name, [0.0])[-1]
        claim(f"{name} is nvidia-smi's", abs(mine / numbers[name] - 1) <= slack, f"{mine:g} / {numbers[name]:g}")
    clock = max(columns["sm_clock_mhz"])
    claim("the clock is one that the card has", 0 < clock <= numbers["sm"], f"{clock:.0f} of {numbers['sm']:.0f} MHz")
    shares = ("gpu_util", "gpu_memory_util", "sm_activity", "sm_occupancy", "gpu_throttled", "gpu_power_capped")
    for name in shares:
        values = columns.get(name)
        unknown = "the card or the driver does not give it" if name.startswith("sm_") else "missing"
        holds = all(0 <= value <= 1 for value in values) if values else name.startswith("sm_")
        claim(f"{name} is a share", holds, f"mean {sum(values) / len(values):.2f}" if values else unknown)
    claim("the training keeps the card busy", max(columns["gpu_util"]) > 0.3, f"{max(columns['gpu_util']):.2f}")
    busy = columns.get("sm_activity")
    claim("SMs are busy no longer than the card", not busy or max(busy) <= max(columns["gpu_util"]) + 0.1)
    power, limit = max(columns["gpu_power_w"]), columns["gpu_power_limit_w"][-1]
    claim("power is within the limit", 20 < power < 1.2 * limit, f"{power:.0f} W of {limit:.0f}")
    claim("PCIe is not faster than PCIe", 0 <= max(columns["pcie_rx_mib_s"]) < 130_000, max(columns["pcie_rx_mib_s"]))
    claim("the card is not lost", max(columns["gpu_lost"]) == 0)
    listed = Nvml().processes(0) or []
    others = columns.get("gpu_other_processes", [0])[-1]
    claim("the others on the card are counted", not listed or others == len(listed) - 1, f"{others} of {len(listed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    root = Path(tempfile.mkdtemp(prefix="gpu_check"))

    plain = fit(root / "plain", [], steps)
    hooks_never_synchronise()
    watch = Watch()
    watched = fit(root / "ours", [*ours(), watch], steps)
    record = load_record(root / "ours")
    off = [e["text"] for e in record.events if e["kind"] == "callback_off"]
    claim("no hook synchronises with the device", not off, off)
    claim("every step has its row", record.steps["step"] == list(range(1, steps + 1)))
    claim("every row has every number", all(None not in column for column in record.steps.values()))
    claim("rows are at most two steps late", max(watch.late, default=0) <= 2, f"most: {max(watch.late, default=0)}")
    norms = dict(zip(record.steps["step"], record.steps["train/grad_norm"], strict=True))
    worst = max(abs(norms[step] / norm - 1) for step, norm in watch.norms.items())
    claim("norms are those that the Trainer logs", worst < 1e-3, f"largest difference {worst:.1e}")
    losses = [[row["loss"] for row in t.state.log_history if "loss" in row] for t in (plain, watched)]
    same = all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
    claim("weights equal those of the run without us", same, f"losses {losses[0][-1]:.6f} / {losses[1][-1]:.6f}")
    peak = record.steps["system/peak_allocated_gib"][-1]
    claim("the peak is torch's", abs(peak - torch.cuda.max_memory_allocated() / 2**30) < 0.5, f"{peak:.2f} GiB")
    took, wall = sum(record.steps["time/step_s"][1:]), record.steps["time"][-1] - record.steps["time"][0]
    claim("the steps' device time is the wall time", abs(took / wall - 1) < 0.1, f"{took:.2f} s of {wall:.2f} s")
    model_s = sum(sum(record.steps[f"time/{part}_s"][1:]) for part in ("forward", "backward"))
    claim("most of it is the model", 0.5 < model_s / took < 1, f"{model_s / took:.0%}")
    claim("no part is negative", all(min(v) >= 0 for k, v in record.steps.items() if k.startswith("time/")))
    system_claims(record)
    nvml = Nvml()
    memory = nvml.memory(0)
    claim("NVML sees the card", memory is not None, nvml.reason or json.dumps(memory))
    claim("NVML sees this process", bool(nvml.processes(0)), nvml.processes(0))

    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        fit(root / "oom", ours(), 5, length=8192)
        claim("the out-of-memory run ran out", False)
    except torch.OutOfMemoryError:
        oom = [e for e in load_record(root / "oom").events if e["kind"] == "oom"]
        claim("out of memory is on record with its batch", bool(oom) and oom[0]["evidence"]["longest_sequence"] == 8192)
    torch.cuda.set_per_process_memory_fraction(1.0)
    sys.exit(f"{len(FAILED)} claims failed" if FAILED else 0)


if __name__ == "__main__":
    main()
