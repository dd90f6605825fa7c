"""The command that resumes: overrides, environment, and starting it in the place of this process."""

import os
import shlex
import sys
from dataclasses import dataclass, field

#: what LlamaFactory's launcher reads beside the number of processes, in the order in which it is shown
_FIRST = ("FORCE_TORCHRUN", "USE_RAY", "NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")


@dataclass
class Launch:
    """One call of `llamafactory-obs train`.

    Attributes:
        words: the config and the overrides.
        environment: variables beside those that are set already.
        open: variables of several nodes that only the person at each node can fill in.
    """

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The command for a shell, a line for each word that stands alone, with `\\` at the end of all but the last."""
        names = sorted(self.environment, key=lambda name: (name not in _FIRST, _rank(name), name))
        lines = [f"{name}={shlex.quote(self.environment[name])}" for name in names]
        lines += [f"{name}=..." for name in self.open]
        config, *overrides = self.words
        lines.append(f"llamafactory-obs train {shlex.quote(config)}")
        lines += [f"  {shlex.quote(word)}" for word in overrides]
        return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]

    @property
    def text(self) -> str:
        """The same in one line."""
        return " ".join(line.removesuffix(" \\").strip() for line in self.lines)

    def start(self, to_stderr: bool) -> None:
        """Start it in the place of this process: signals and exit code are the training's own.

        Args:
            to_stderr: stdout has held the verb's one object; what the training prints goes to stderr.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        if to_stderr:
            os.dup2(2, 1)
        words = [sys.executable, "-m", "llamafactory_obs.cli", "train", *self.words]
        os.execve(sys.executable, words, {**os.environ, **self.environment})

    def as_dict(self) -> dict:
        """For `--json`."""
        return {
            "words": ["llamafactory-obs", "train", *self.words],
            "environment": self.environment,
            "open": self.open,
            "text": self.text,
        }


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def override(key: str, value: str) -> str:
    """`key=value` that OmegaConf reads back as this very text, whatever stands in it."""
    from omegaconf import OmegaConf

    for said in (value, "'" + value.replace("'", "''") + "'"):
        try:
            if OmegaConf.to_container(OmegaConf.from_cli([f"{key}={said}"])) == {key: value}:  # as `read_args` does
                return f"{key}={said}"
        except Exception:  # YAML of another kind in the text: quoted it is none
            continue
    raise ValueError(f"{key}={value} cannot be written as an override")


def survives_torchrun(words: list[str]) -> bool:
    """LlamaFactory 0.9.5 joins the words for torchrun with blanks and splits them again (`launcher.launch`)."""
    return all(word and len(word.split()) == 1 and word == word.strip() for word in words)


def environment_of(world: dict) -> tuple[dict[str, str], list[str]]:
    """How the recorded run was started, as variables of LlamaFactory's launcher.

    Args:
        world: of `run.json`.

    Returns:
        `(environment, open)`.
    """
    launcher, local, nodes = (world.get(key) for key in ("launcher", "local_world_size", "nodes"))
    if launcher == "ray":
        return {"USE_RAY": "1"}, []
    if launcher != "torchrun" or not isinstance(local, int):
        return {}, []
    environment = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(local)}
    if not isinstance(nodes, int) or nodes < 2:
        return environment, []
    names = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment |= {"NNODES": str(nodes), **{name: os.environ[name] for name in names if os.environ.get(name)}}
    return environment, [name for name in names if name not in environment]
