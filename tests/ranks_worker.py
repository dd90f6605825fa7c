"""Runs under torchrun with 2 gloo processes: `ranks_worker.py CASE ARGUMENTS(json)`."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import TrainerCallback


def train(config: dict) -> None:
    """A LlamaFactory run; `break_rank` plants an exception on one rank, `poison_step` a huge gradient; `slow_rank` naps
    in its forward passes; `drift` changes a weight or the rate of rank 1 after step 3;
    `commands`: step -> words for `control`; `notice`: SIGTERM to a rank, or to all, in the step after this one."""
    if sharding := config.pop("fsdp2", False):
        allow_fsdp2_on_cpu("FULL_STATE_DICT" if sharding is True else sharding)
    from llamafactory.train.tuner import run_exp

    import llamafactory_obs
    from llamafactory_obs.plugin import autoload

    autoload.install()
    broken, poison = config.pop("break_rank", None), config.pop("poison_step", None)
    slow, notice = config.pop("slow_rank", None), config.pop("notice", None)
    callbacks = [Drift(config.pop("drift"))] if "drift" in config else []
    if "commands" in config:
        from commander import Commander, RateOfEachStep

        words = {int(step): words for step, words in config.pop("commands").items()}
        callbacks.append(RateOfEachStep(dist_rank()))
        if dist_rank() == 0:
            callbacks.append(Commander(Path(config["output_dir"]), words))
    if notice is not None:

        class Notice(TrainerCallback):
            def on_step_begin(self, args, state, control, **kwargs):
                if state.global_step == notice["step"] and notice["rank"] in (None, dist.get_rank()):
                    os.kill(os.getpid(), signal.SIGTERM)

        callbacks.append(Notice())
    if slow is not None:

        class Nap(TrainerCallback):
            def on_train_begin(self, args, state, control, model=None, **kwargs):
                if dist.get_rank() == slow:
                    model.register_forward_pre_hook(lambda *_: time.sleep(0.2))

        callbacks.append(Nap())
    if broken is not None:
        real = llamafactory_obs.LabelMask.batch

        def batch(self, inputs):
            if dist.get_rank() == broken and self.run.step == 2:
                raise OSError("planted")
            return real(self, inputs)

        llamafactory_obs.LabelMask.batch = batch
    if poison is not None:

        class Poison(TrainerCallback):
            def on_train_begin(self, args, state, control, model=None, **kwargs):
                for parameter in model.parameters():
                    parameter.register_hook(lambda g: g * 1000 if state.global_step == poison - 1 else g)

        callbacks.append(Poison())
    run_exp(config, callbacks=callbacks)


def dist_rank() -> int:
    """This process' rank, before the process group is there."""
    return int(os.environ["RANK"])


def allow_fsdp2_on_cpu(saved: str) -> None:
    """accelerate takes FSDP for accelerators only, though torch's FSDP2 works with gloo: it is told another type."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    layer = {"AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer"}
    options = {"VERSION": "2", "RESHARD_AFTER_FORWARD": "true", "STATE_DICT_TYPE": saved} | layer
    os.environ.update({"ACCELERATE_USE_FSDP": "true"} | {f"FSDP_{name}": value for name, value in options.items()})
    real = PartialState.__init__

    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        if self._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            self._shared_state["distributed_type"] = DistributedType.MULTI_HPU

    PartialState.__init__ = init


class Drift(TrainerCallback):
    """Rank 1 gets out of step at the end of step 3: one element of one weight by one bit, or the learning rate."""

    def __init__(self, what: str):
        self.what = what

    def on_step_end(self, args, state, control, model=None, optimizer=None, **kwargs):
        if dist.get_rank() == 1 and state.global_step == 3:
            if self.what == "rate":
                optimizer.param_groups[0]["lr"] *= 1.5
            else:
                frozen = self.what == "frozen"
                weight = next(p for p in model.parameters() if p.requires_grad is not frozen)
                weight.detach().view(torch.int32).view(-1)[5] ^= 1


def fsdp2(arguments: dict) -> None:
    """Norms of a model sharded by `fully_shard`, beside those of the same model in one piece."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    from llamafactory_obs import LayerNorms
    from llamafactory_obs.callbacks.taps import _shared_norms

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    ids = torch.arange(3, 35).reshape(2, 16)

    def build():
        return AutoModelForCausalLM.from_pretrained(arguments["model"])

    dense = build()
    dense(input_ids=ids, labels=ids).loss.backward()
    wanted = {name: p.grad.norm().item() for name, p in dense.named_parameters()}

    def sharded():
        model = build()
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model(input_ids=ids, labels=ids).loss.backward()
        return model

    stock, ours, captured = sharded(), sharded(), []
    stock_total = torch.nn.utils.clip_grad_norm_(stock.parameters(), 0.05).full_tensor()
    with _shared_norms(captured):
        total = torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.05)
    names = {id(p): name for name, p in ours.named_parameters()}
    found = {names[id(p)]: norm for p, norm in zip(captured[0].parameters, captured[0].norms.tolist(), strict=True)}

    callback = LayerNorms(weights_every=1)
    weights = {name: p.detach().clone() for name, p in dense.named_parameters()}
    rows = _weights_through_callback(callback, ours, captured[0], lr=0.1)
    with torch.no_grad():
        updated = {n: (p.full_tensor() - weights[n]).norm().item() for n, p in ours.named_parameters()}
    result = {
        "wanted": wanted,
        "found": found,
        "total": captured[0].total.item(),
        "stock_total": stock_total.item(),
        "full_total": total.full_tensor().item(),
        "same_clipping": all(
            torch.equal(a.grad.to_local(), b.grad.to_local())
            for a, b in zip(stock.parameters(), ours.parameters(), strict=True)
        ),
        "weights": {n: w.norm().item() for n, w in weights.items()},
        "updates": updated,
        "row": rows,
    }
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps(result))
    dist.barrier()  # a rank that leaves early tears the connection of one that still computes
    dist.destroy_process_group()


def _weights_through_callback(callback, model, gradients, lr):
    """Drive the callback's own hooks around one update; returns the per-parameter weight norms and update norms."""
    from llamafactory_obs.callbacks.pipeline import Row

    class Run:
        step, trainer, open_row = 1, type("Trainer", (), {"model": model}), Row()

        def append(self, file, row):
            pass

        def defer(self, tensors, finish):
            self.values = [t.tolist() for t in tensors]

    names = [name for name, _ in model.named_parameters()]
    callback.run = Run()
    callback.begin()
    callback.gradients(gradients)
    torch.optim.SGD(model.parameters(), lr=lr).step()
    callback.updated()
    weights, updates = callback.run.values
    return {"weights": dict(zip(names, weights, strict=True)), "updates": dict(zip(names, updates, strict=True))}


if __name__ == "__main__":
    {"train": train, "fsdp2": fsdp2}[sys.argv[1]](json.loads(sys.argv[2]))
