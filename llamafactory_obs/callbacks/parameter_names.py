"""The names of the model's parameters."""


class ParameterNames:
    """`names(parameters)` gives their names, as in `model.named_parameters()`; "?" for one that the model has not.

    Args:
        trainer: its model is looked through again when a parameter comes that is not known, e.g. of a new adapter.
    """

    def __init__(self, trainer):
        self._trainer, self._names = trainer, {}

    def __call__(self, parameters: list) -> list[str]:
        if any(id(p) not in self._names for p in parameters):
            self._names = {id(p): name for name, p in self._trainer.model.named_parameters()}
        return [self._names.get(id(p), "?") for p in parameters]
