"""What torchrun runs in each process for `llamafactory-obs train`: LlamaFactory's training, with the hook in place."""

import sys
from pathlib import Path


def main() -> None:
    """Read the config from the command line, as LlamaFactory's own launcher does in a worker, and train."""
    from llamafactory_obs.plugin import autoload

    autoload.install(force=True)
    from llamafactory.train.tuner import run_exp

    run_exp()


if __name__ == "__main__":
    # Python puts the folder of a script first on its path: our `config.py` would hide anyone's module `config`.
    if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main()
