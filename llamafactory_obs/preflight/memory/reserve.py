"""What is on the card beside tensors: the CUDA context and the allocator's rounding and gaps."""

#: CUDA context with the kernels of torch, cuBLAS and attention, and cuBLAS' workspaces (8 MiB per handle and stream,
#: 32 MiB on Hopper: torch/csrc `getChosenWorkspaceSize`). Not seen by torch's allocator. A range, not measured here:
#: it differs by driver and card
CONTEXT_GIB = (0.3, 0.5, 0.8)

#: reserved / allocated - 1 of torch's caching allocator, over the tensors that come and go. The allocator rounds blocks
#: of 1 to 10 MiB to pieces of a 20 MiB segment and larger ones to 2 MiB (`c10/cuda/CUDACachingAllocator`); batches of
#: changing length leave gaps on top. A range, not measured here
GAPS = (0.0, 0.06, 0.2)


def reserve(moving_bytes: int) -> list[tuple[str, float, float, float, str]]:
    """Lines `(name, gib, low, high, formula)`.

    Args:
        moving_bytes: tensors that are made and freed in each step (activations, logits, temporary buffers, gradients).
    """
    gib = moving_bytes / (1 << 30)
    low, mid, high = (share * gib for share in GAPS)
    text = f"{GAPS[1]:.0%} of {gib:.2f} GiB that come and go ({GAPS[0]:.0%} to {GAPS[2]:.0%})"
    context = f"assumed, {CONTEXT_GIB[0]} to {CONTEXT_GIB[2]} GiB by driver and card"
    return [
        ("CUDA context", CONTEXT_GIB[1], CONTEXT_GIB[0], CONTEXT_GIB[2], context),
        ("allocator", mid, low, high, text),
    ]
