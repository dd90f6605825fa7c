"""The few facts of a run's identity that fit into a tracker's config; all of it is in `run.json`."""

#: fact -> where it stands in `run.json`
_FACTS = {
    "version": ("llamafactory_obs",),
    "code.sha": ("code", "sha"),
    "code.dirty": ("code", "dirty"),
    "packages": ("packages", "main"),
    "packages_sha256": ("packages", "sha256"),
    "data.rows_sha256": ("data", "rows", "sha256"),
    "data.rows": ("data", "rows", "rows"),
    "data.tokens": ("data", "rows", "tokens"),
    "data.template_sha256": ("data", "template_sha256"),
    "model.config_sha256": ("model", "config_sha256"),
    "model.weights_sha256": ("model", "weights", "sha256"),
    "model.chat_template_sha256": ("model", "tokenizer", "chat_template_sha256"),
    "model.parameters": ("model", "parameters", "total"),
    "model.trainable": ("model", "parameters", "trainable"),
    "seeds": ("seeds",),
    "precision": ("precision", "compute"),
    "hardware.cpu": ("hardware", "cpu"),
    "hardware.gpus": ("hardware", "gpus"),
    "world.size": ("world", "world_size"),
    "world.engine": ("world", "engine"),
    "world.global_batch": ("world", "global_batch"),
}


def brief(identity: dict) -> dict:
    """The facts that are known so far, nested by their names; a hash that is still being made is left out.

    Args:
        identity: as in `run.json`.
    """
    facts: dict = {}
    for name, path in _FACTS.items():
        value: object = identity
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            continue
        group, _, rest = name.partition(".")
        if rest:
            facts.setdefault(group, {})[rest] = value
        else:
            facts[name] = value
    return facts
