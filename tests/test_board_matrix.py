"""The board's probe matrix, read as the file grows."""

from page_folder import probe

from llamafactory_obs.board import matrix as matrix_module
from llamafactory_obs.board.matrix import Matrix
from llamafactory_obs.record.schema import encode


def add(file, *rows: dict) -> None:
    with file.open("ab") as handle:
        handle.write(b"".join(map(encode, rows)))


def heads(matrix: Matrix) -> list[int]:
    matrix.update()
    return [step for step, _ in matrix.shown()["columns"]]


def test_a_suite_that_is_asked_once_does_not_hide_the_others(tmp_path, monkeypatch):
    file = tmp_path / "probes.jsonl"
    matrix = Matrix(file)
    assert matrix.shown() is None
    add(file, *(probe(step, "call", True, "x", suite="three") for step in (20, 40)))
    assert heads(matrix) == [20, 40]
    add(file, probe(60, "q1", False, "x", suite="golden"))
    assert heads(matrix) == [20, 40], "asked at fewer checkpoints"
    add(file, probe(80, "q1", False, "x", suite="golden"))
    assert heads(matrix) == [60, 80], "the newest of equals"
    monkeypatch.setattr(matrix_module, "_MOST_SUITES", 3)
    add(file, *(probe(100, "q", True, "x", suite=f"suite {n}") for n in range(9)))
    assert heads(matrix) == [60, 80] and len(matrix._suites) == 3
    assert [(number, passed) for number, passed, _ in matrix.shown()["rows"][0][1]] == [(2, 0), (3, 0)]
