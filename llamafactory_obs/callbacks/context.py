"""What a run was asked to do, as far as it is known where the callbacks live."""

from dataclasses import dataclass, field

from ..settings import Settings


@dataclass(frozen=True)
class RunContext:
    """Under plain `Trainer(callbacks=[...])` all of it is empty: then only the Trainer itself is known.

    Attributes:
        given: the config as it was given, before any parsing.
        arguments: LlamaFactory's parsed argument objects: `model_args`, `data_args`, `training_args`,
            `finetuning_args`, `generating_args`.
        settings: the `obs:` block.
        hidden: secrets of the config: from `${VARIABLES}` and under keys such as `hf_hub_token`.
    """

    given: dict | None = None
    arguments: dict = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    hidden: frozenset[str] = frozenset()

    @property
    def stage(self) -> str | None:
        """LlamaFactory's stage: pt, sft, rm, dpo, kto, ppo; None outside LlamaFactory."""
        return getattr(self.arguments.get("finetuning_args"), "stage", None)

    def data(self, name: str):
        """A value of LlamaFactory's data arguments, e.g. `cutoff_len`; None where unknown."""
        return getattr(self.arguments.get("data_args"), name, None)
