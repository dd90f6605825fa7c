"""A bundle in one line."""

from ..values import size, t


def told(found: dict) -> str:
    """What `pack` or `verify` found, for people."""
    path = found["path"]
    if not found["whole"] and not found.get("weights_why"):
        return t("bundle.broken", path=path, why=found["why"])
    weights = found["weights"]
    if "sha256" not in weights:
        line = t("bundle.no_weights", why=weights.get("why", ""))
    else:
        files = ", ".join(one["file"] for one in weights["files"][:3])
        name = files if weights["folder"] == "." else f"{weights['folder']}/{files}"
        values = {"name": name, "sha": weights["sha256"][:16]}
        line = t("bundle.weights", **values)
        if found.get("compared_with") and not found["weights_why"]:
            line = t("bundle.weights_match", folder=found["compared_with"], **values)
    if found.get("weights_why"):
        line = t("bundle.weights_differ", folder=found["compared_with"], why=found["weights_why"])
        if found["why"]:
            return t("bundle.broken", path=path, why=f"{found['why']}; {line}")
    return t(
        "bundle.whole",
        path=path,
        files=found["files"],
        size=size(found["bytes"]),
        manifest=found["manifest_sha256"][:16],
        weights=line,
    )
