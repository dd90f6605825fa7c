"""Row numbers of the raw data, carried as columns through LlamaFactory's loading: selections, merging, splits.

LlamaFactory's converters and processors do not look at these columns, and drop them where they drop all columns.
"""

import numpy as np

#: columns of an aligned row: the data set's number (in the order of loading), the row's number in the data as loaded
DATASET, ROW = "_obs_dataset", "_obs_row"


def with_row_numbers(dataset):
    """A data set as loaded, with each row's number as a column that `select` and the like carry along.

    A stream comes back as it is.
    """
    if not hasattr(dataset, "add_column") or not hasattr(dataset, "__len__") or ROW in dataset.column_names:
        return dataset
    return dataset.add_column(ROW, np.arange(len(dataset), dtype=np.int64))


def take_row_numbers(dataset) -> tuple[object, np.ndarray | None]:
    """The data set without that column, and the row numbers.

    Where a loader of a hub gave the data set, there is no such column: then they are the numbers of its selection, or
    of all rows in order.

    Returns:
        The data set, and int64 of shape [rows]; None for a stream.
    """
    if not hasattr(dataset, "__len__"):
        return dataset, None
    if ROW in dataset.column_names:
        rows = dataset.select_columns([ROW]).with_format("arrow")[:][ROW]
        return dataset.remove_columns(ROW), rows.to_numpy()
    indices = getattr(dataset, "_indices", None)
    if indices is None:
        return dataset, np.arange(len(dataset), dtype=np.int64)
    return dataset, indices.column(0).to_numpy().astype(np.int64)


def tagged(aligned, number: int, rows: np.ndarray | None):
    """The aligned rows with the columns `DATASET` and `ROW`; rows of a stream are numbered as they are read."""
    if rows is None:
        return aligned.map(lambda example, index: {DATASET: number, ROW: index}, with_indices=True)
    numbers = np.full(len(aligned), number, dtype=np.int64)
    return aligned.add_column(DATASET, numbers).add_column(ROW, rows)
