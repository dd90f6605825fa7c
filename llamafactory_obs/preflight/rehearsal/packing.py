"""How many blocks LlamaFactory's packing makes of rows, by its own rule."""

from collections.abc import Callable


def blocks_of(arguments) -> Callable[[list[int]], int]:
    """Lengths of rows in their order -> blocks. Rows are packed within each `preprocessing_batch_size` of them.

    `sft`: LlamaFactory's greedy knapsack; `pt`: the texts of a batch one after another, cut every `cutoff_len`.
    """
    from llamafactory.data.processor.processor_utils import greedy_knapsack

    data, joined = arguments.data, arguments.finetuning.stage == "pt"

    def count(lengths: list[int]) -> int:
        size, total = data.preprocessing_batch_size, 0
        for start in range(0, len(lengths), size):
            part = lengths[start : start + size]
            total += sum(part) // data.cutoff_len if joined else len(greedy_knapsack(part, data.cutoff_len))
        return total

    return count
