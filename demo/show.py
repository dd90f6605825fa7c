"""What the record of a run shows: a few lines in the terminal and one picture.

python demo/show.py demo/out/run            writes demo/out/run/obs/run.png
python demo/show.py --golden demo/out/run   the scores of the last golden set
"""

import sys
from pathlib import Path

import matplotlib

from llamafactory_obs import load_record

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLUE, ORANGE, GREY = "#1f5fa8", "#d1661a", "#8a8a8a"


def text(record) -> str:
    """The record in a few lines."""
    steps = record.steps
    seconds = steps["time"][-1] - steps["time"][0]
    inside = sum(steps["time/callbacks_s"][1:])
    run = record.run
    alerts = [e for e in record.events if e["kind"] == "alert"]
    checkpoints = [e["step"] for e in record.events if e["kind"] == "checkpoint"]
    tokens, longest = sum(steps["data/tokens"]), int(max(steps["data/max_length"]))
    lines = [
        f"record        {record.folder}  ({len(steps['step'])} steps, {len(record.events)} events)",
        f"loss          {steps['train/loss'][0]:.3f} -> {steps['train/loss'][-1]:.3f}",
        f"gradient norm median {sorted(steps['train/grad_norm'])[len(steps['step']) // 2]:.3f}, largest"
        f" {max(steps['train/grad_norm']):.3f} at step {steps['step'][_argmax(steps['train/grad_norm'])]};"
        f" clipped in {sum(c < 1 for c in steps['train/clip_coef']) / len(steps['step']):.0%} of the steps",
        f"in the loss   {sum(steps['data/supervised_tokens']) / tokens:.1%} of {int(tokens):,} real tokens;"
        f" padding {1 - tokens / sum(steps['data/cells']):.1%}; longest sample {longest} tokens",
        f"layers        {len(record.layers.names)} by layer, {len(record.layers.modules)} by module type, every step",
        f"alerts        {len(alerts)}",
        *(f"              step {e['step']}: {e['title']}" for e in alerts[:5]),
        f"checkpoints   {', '.join(map(str, checkpoints))}",
        f"identity      rows {str(run['data']['rows']['sha256'])[:12]}, weights"
        f" {str(run['model']['weights']['sha256'])[:12]}, {len(run['packages']['list'])} packages",
        f"cost of it    {inside / seconds:.2%} of the wall time was spent in our callbacks",
    ]
    return "\n".join(lines)


def picture(record, target: Path) -> None:
    """Loss and norm, the norms of each layer, the mask, memory: one step axis."""
    steps = record.steps
    x = steps["step"]
    figure, axes = plt.subplots(4, 1, figsize=(9, 11), sharex=True, constrained_layout=True)
    figure.suptitle("One run, one step axis", x=0.02, ha="left", fontsize=13, fontweight="bold")

    top = axes[0]
    top.plot(x, steps["train/loss"], color=BLUE, lw=1.2)
    top.set_ylabel("loss (every step)", color=BLUE)
    norm = top.twinx()
    norm.plot(x, steps["train/grad_norm"], color=ORANGE, lw=0.9, alpha=0.85)
    norm.set_yscale("log")
    norm.set_ylabel("gradient norm before clipping", color=ORANGE)
    for event in record.events:
        if event["kind"] == "alert":
            top.axvline(event["step"], color="#b00020", lw=1, ls=":")
    for axis in axes:
        for event in record.events:
            if event["kind"] == "checkpoint":
                axis.axvline(event["step"], color=GREY, lw=0.6, alpha=0.6)

    layers = record.layers
    columns = [layers.column("grad_norm", name) for name in layers.names]
    marks = sorted(columns[0])
    grid = [[column[step] for step in marks] for column in columns]
    highest = max(max(row) for row in grid)
    mesh = axes[1].pcolormesh(
        [marks[0] - 0.5, *[step + 0.5 for step in marks]],
        range(len(grid) + 1),
        grid,
        norm=matplotlib.colors.LogNorm(highest / 1e4, highest, clip=True),
        cmap="magma",
        rasterized=True,
    )
    axes[1].set_yticks([i + 0.5 for i in range(len(grid))], layers.names, fontsize=8)
    axes[1].set_ylabel("gradient norm by layer")
    figure.colorbar(mesh, ax=axes[1], pad=0.01)

    axes[2].axhspan(0.2, 0.4, color=BLUE, alpha=0.08, lw=0)
    axes[2].plot(x, steps["data/supervised_ratio"], color=BLUE, lw=1, label="tokens in the loss")
    axes[2].plot(x, steps["data/min_supervised_ratio"], color=ORANGE, lw=0.8, label="least in one sample")
    axes[2].plot(x, steps["data/padding_ratio"], color=GREY, lw=0.8, label="padding")
    axes[2].set_ylim(0, 1)
    axes[2].set_ylabel("share")
    axes[2].legend(loc="upper right", fontsize=8, frameon=False, ncols=3)

    key = "system/peak_reserved_gib" if "system/peak_reserved_gib" in steps else "system/rss_gib"
    axes[3].plot(x, steps[key], color=BLUE, lw=1.2)
    axes[3].set_ylabel("GiB " + ("reserved peak" if "peak" in key else "of process memory"))
    axes[3].ticklabel_format(axis="y", useOffset=False)
    axes[3].set_xlabel("optimizer step (grey lines: checkpoints, red: alerts)")
    figure.savefig(target, dpi=110)


def _argmax(numbers: list[float]) -> int:
    return max(range(len(numbers)), key=numbers.__getitem__)


def golden(record) -> str:
    """The four layers of scores of the newest verdict under the golden set."""
    verdicts = [e["evidence"] for e in record.events if e["title"] == "verdict"]
    scores = next(v for v in reversed(verdicts) if v["suite_name"] == "golden")["scores"]
    errors = scores.pop("errors")
    text = ", ".join(f"{layer.replace('_', ' ')} {s['right']}/{s['of']}" for layer, s in scores.items())
    return f"golden set    {text}" + (f"; errors {errors}" if errors else "")


def main() -> None:
    record = load_record(sys.argv[-1])
    if "--golden" in sys.argv:
        print(golden(record))
        return
    target = record.folder / "run.png"
    picture(record, target)
    print(f"{text(record)}\npicture       {target}")


if __name__ == "__main__":
    main()
