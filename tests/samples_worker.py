"""Runs under torchrun: a LlamaFactory run with the witness; each rank writes what its model was given."""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist
from sample_runs import Shifted, Witness

if __name__ == "__main__":
    from llamafactory.train.tuner import run_exp

    from llamafactory_obs.plugin import autoload

    autoload.install()
    config, folder, shifted = json.loads(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    rank = int(os.environ["RANK"])
    own = config.pop("own_folders", False)
    if own:  # nodes that share no folder
        config["output_dir"] = f"{config['output_dir']}-{rank}"
    witness = Witness()
    damage = Shifted(shifted["step"]) if shifted and rank == shifted["rank"] else Shifted(None)
    with damage:
        run_exp(config, callbacks=[witness])
    found = {"seen": witness.seen, "rows": witness.rows}
    (folder / f"witness-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if dist.is_initialized():
        dist.barrier()  # a rank that leaves early tears the connection of one that still computes
        dist.destroy_process_group()
