"""What the board serves: runs and what changed since, runs that come and go, raw outputs, hostile texts."""

import json
import os
import time

import pytest
from board_server import Board, append
from page_folder import event, full, probe, record, row

from llamafactory_obs.board.lines import Line
from llamafactory_obs.live import Points
from llamafactory_obs.texts.findings import title

GROWTH = {lang: title("growth", lang) for lang in ("en", "zh")}


@pytest.fixture
def run(tmp_path):
    full(tmp_path / "saves" / "a")
    return tmp_path / "saves" / "a"


def only(state: dict) -> dict:
    """The parts of the one run that is there."""
    (parts,) = state["runs"].values()
    return parts


def texts_in(value: object) -> list[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for one in value for text in texts_in(one)]
    return [value] if isinstance(value, str) else []


def curve(line: dict) -> dict[int, object]:
    """Step -> value of a whole curve as it is sent."""
    steps, step = [], 0
    for by in line["s"]:
        step += by
        steps.append(step)
    return dict(zip(steps, line["v"], strict=True))


def test_one_run_as_it_is_in_the_record(run):
    with Board(run, price=3.6) as board:
        state = board.state()
        assert [one["name"] for one in state["listing"]] == ["a"] and state["reset"] is True
        parts = only(state)
        head = parts["head"]
        assert (head["step"], head["max_steps"], head["source"]) == (60, 60, "record")
        assert head["machine"]["peak_reserved_gib"] == 16 and head["mask"]["padding_ratio"] == 0.1
        rows = [json.loads(line) for line in (run / "obs" / "steps.jsonl").read_text().splitlines()]
        for name, column in (("loss", "train/loss"), ("norm", "train/grad_norm"), ("speed", "system/tokens_per_sec")):
            want = {one["step"]: one[column] for one in rows}
            assert curve(parts["curves"][name]) == pytest.approx(want, rel=1e-5)
        assert curve(parts["curves"]["eval"]) == {20: 1.5, 60: 1.25}
        assert parts["marks"] == [
            {"step": 30, "kind": "alert", "level": "warn", "title": GROWTH},
            {"step": 40, "kind": "alert", "level": "error", "title": GROWTH},
        ]
        probes = parts["probes"]
        assert probes["columns"] == [[20, "checkpoint-20"], [40, "checkpoint-40"]]
        assert probes["rows"] == [["call", [[0, 0, "wrong_arguments"], [1, 1, ""]]], ["talk", [0, [2, 1, ""]]]]
        assert probes["passed"] == [[0, 1], [2, 2]]
        assert head["cost"] == pytest.approx(head["seconds"] / 1000), "3.6 an hour"


def test_only_what_is_new_is_sent(run):
    with Board(run) as board:
        first = board.state()
        asked = {"board": first["board"], "have": first["listing"][0]["id"]}
        second = board.state(since=first["tick"], **asked)
        assert second["runs"] == {} and "listing" not in second and "reset" not in second
        append(run, "steps.jsonl", row(61, time=time.time(), **{"train/loss": float("nan")}), row(62, time=time.time()))
        third = board.wait(lambda state: state["runs"], since=first["tick"], **asked)
        assert only(third)["head"]["step"] == 62 and "probes" not in only(third)
        loss = only(third)["curves"]["loss"]
        assert list(curve(loss)) == [61, 62] and loss["from"] == 61 and loss["v"][0] == "nan"
        stranger = board.state(since=third["tick"], board=first["board"])
        assert len(curve(only(stranger)["curves"]["loss"])) == 62, "who has nothing of a run gets all of it"
        restarted = board.state(since=third["tick"], board="0", have=asked["have"])
        assert restarted["reset"] is True and only(restarted)["curves"]["loss"]["from"] is None


def test_a_resume_takes_steps_back(run):
    with Board(run) as board:
        first = board.state()
        asked = {"since": first["tick"], "board": first["board"], "have": first["listing"][0]["id"]}
        append(run, "events.jsonl", event(20, kind="resume", segment=1, evidence={"max_steps": 60}))
        append(run, "steps.jsonl", row(21, segment=1, **{"train/loss": 9.0}))
        state = board.wait(lambda state: "curves" in state["runs"].get(asked["have"], {}), **asked)
        loss = only(state)["curves"]["loss"]
        assert loss["from"] == 21 and curve(loss) == {21: 9.0}
        marks = only(state)["marks"]
        assert [(mark["kind"], mark["step"]) for mark in marks] == [("resume", 20)], "later alerts are taken back"
        assert only(state)["head"]["segment"] == 1


@pytest.mark.parametrize("tick", [0, 1, 2, 3, 4, 5, 6, 7])
def test_whenever_a_page_looked_last_it_ends_with_the_same_points(tick):
    import numpy as np

    def points(steps, values, means=None):
        means = None if means is None else np.array(means, dtype=float)
        return Points(np.array(steps, dtype=np.int64), np.array(values, dtype=float), means, len(steps))

    looks = [
        points([], []),
        points([1, 2, 3], [1, 2, 3]),
        points([1, 2, 3, 4], [1, 2, 3, 4]),
        points([1, 3, 4, 5], [1, 3, 4, float("nan")]),  # thinned out
        points([1, 3, 4, 5], [1, 3, 4.5, float("nan")]),
        points([1, 2], [1, 7]),  # a resume
        points([1, 2], [1, 7], [1, 2]),
        points([], []),
    ]
    line, page = Line(), {}

    def take(news):
        if news is not None:
            begin = -1 if news["from"] is None else news["from"]
            for step in [step for step in page if step >= begin]:
                del page[step]
            page.update(curve(news))

    for number, look in enumerate(looks[:tick], 1):
        line.update(look, number)
    take(line.since(0) if tick else None)
    for number, look in enumerate(looks[tick:], tick + 1):
        line.update(look, number)
    take(line.since(tick))
    assert page == {}, "as the last look has it"
    assert line.since(len(looks)) is None


def test_a_folder_of_runs_and_one_that_begins_later(tmp_path, monkeypatch):
    monkeypatch.setattr("llamafactory_obs.board.feed._SEARCH", 0.5)
    saves = tmp_path / "saves"
    saves.mkdir()
    with Board(saves) as board:
        empty = board.state()
        assert empty["listing"] == [] if "listing" in empty else True
        assert empty["runs"] == {} and empty["chosen"] == []
        append(saves / "m" / "lora" / "sft", "events.jsonl", event(0, kind="start", time=time.time()))
        append(saves / "m" / "lora" / "sft", "steps.jsonl", row(1, time=time.time()))
        asked = {"since": empty["tick"], "board": empty["board"]}
        state = board.wait(lambda state: state["runs"], **asked)
        assert [one["name"] for one in state["listing"]] == ["m/lora/sft"]
        assert only(state)["head"]["status"] == "training"


def test_the_newest_are_proposed_and_others_can_be_chosen(tmp_path):
    for number in range(7):
        folder = record(tmp_path / f"r{number}", steps=[row(1)])
        os.utime(folder / "obs" / "steps.jsonl", (1e9 + number, 1e9 + number))
    (tmp_path / "r0" / "checkpoint-5" / "obs").mkdir(parents=True)
    (tmp_path / "r0" / "checkpoint-5" / "obs" / "steps.jsonl").write_text("")
    with Board(tmp_path) as board:
        state = board.state()
        ids = {one["name"]: one["id"] for one in state["listing"]}
        assert sorted(ids) == [f"r{number}" for number in range(7)]
        assert state["chosen"] == [ids[name] for name in ("r6", "r5", "r4", "r3")] and set(state["runs"]) == set(
            state["chosen"]
        )
        chosen = board.state(runs=f"{ids['r0']},{ids['r6']},000000000000")
        assert chosen["chosen"] == [ids["r0"], ids["r6"]] and set(chosen["runs"]) == {ids["r0"], ids["r6"]}
        assert board.state(runs="")["runs"] == {}


def test_a_raw_output_is_sent_when_asked_for(run):
    with Board(run) as board:
        state = board.state()
        (name,) = state["runs"]
        status, headers, body = board.get(f"/api/probe/{name}/0")
        told = json.loads(body)
        assert status == 200 and headers["content-type"].startswith("application/json")
        assert told["probe"] == "call" and told["passed"] is False and told["prompt"] == "ask call"
        assert told["turns"] == [{"raw": "wrong", "replies": ['{"orders": []}']}]
        assert told["details"] == ["wrong_arguments: month is 7, expected 8"]
        assert board.get(f"/api/probe/{name}/3")[0] == 404
        assert board.get("/api/probe/000000000000/0")[0] == 404


def test_the_untuned_model_comes_first_and_of_many_checkpoints_the_newest_are_shown(tmp_path):
    rows = [probe(step, "call", step > 500, "x") for step in range(100, 4000, 100)]
    record(
        tmp_path / "run", steps=[row(1)], probes=[rows[0], probe(0, "call", False, "x", checkpoint="base"), *rows[1:]]
    )
    with Board(tmp_path / "run") as board:
        probes = only(board.state())["probes"]
        assert [step for step, _ in probes["columns"]] == [0, *range(1700, 4000, 100)] and probes["left_out"] == 16
        assert probes["passed"] == [[0, 1]] + [[1, 1]] * 23
        (line,) = probes["rows"]
        assert [cell[0] for cell in line[1]] == [1, *range(17, 40)], "the number of each row in the file"


def test_texts_of_a_run_are_data_and_nothing_acts(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
    folder = tmp_path / "<img src=x onerror=alert(2)>"
    alert = {"id": evil, "state": "raised", "level": "error", "since": 1, "count": 1, "open": True, "told": True}
    record(
        folder,
        steps=[row(1)],
        events=[event(1, "error", title=evil, text=evil, name=evil, alert=alert)],
        probes=[probe(1, evil, False, evil, errors=[evil], checkpoint=evil)],
    )
    with Board(folder) as board:
        state = board.state()
        parts = only(state)
        answer = json.loads(board.get(f"/api/probe/{next(iter(state['runs']))}/0")[2])
        told = "".join(texts_in([parts, answer]))
        assert "onerror" in told and not {"\x1b", "\u202e"} & set(told), "what is invisible is written out"
        assert parts["alerts"][0]["text"]["en"] == "</script><img src=x onerror=alert(1)>\\x1b[31m\\u202e"
        page = board.get("/")[2].decode()
        assert "onerror" not in page and page.count("<script") == 2


@pytest.mark.parametrize(
    "rows", [b"[]\n1\nnull\n", b"\xff\xfe\n", b'{"step":1,"train/loss":"<b>","nonfinite":7}\n', b""]
)
def test_a_record_that_is_rubbish_is_shown_as_empty(tmp_path, rows):
    for name in ("steps", "events", "probes", "checkpoints"):
        append(tmp_path / "r", f"{name}.jsonl")
        (tmp_path / "r" / "obs" / f"{name}.jsonl").write_bytes(rows)
    full(tmp_path / "good")
    with Board(tmp_path) as board:
        state = board.state()
        heads = {one["name"]: state["runs"][one["id"]]["head"] for one in state["listing"]}
        assert heads["r"].get("step") == 0 and heads["good"]["step"] == 60


def test_a_run_that_cannot_be_read_says_so_and_the_others_go_on(tmp_path, monkeypatch):
    from llamafactory_obs.board import one_run

    full(tmp_path / "good")
    full(tmp_path / "bad")
    real = one_run.Follower.update

    def update(self):
        if "bad" in self._given:
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(one_run.Follower, "update", update)
    with Board(tmp_path) as board:
        state = board.state()
        heads = {one["name"]: state["runs"][one["id"]]["head"] for one in state["listing"]}
        assert "Permission denied" in heads["bad"]["failed"] and heads["good"]["step"] == 60
        monkeypatch.setattr(one_run.Follower, "update", real)
        asked = {"since": state["tick"], "board": state["board"], "have": ",".join(state["chosen"])}
        bad = next(one["id"] for one in state["listing"] if one["name"] == "bad")
        later = board.wait(lambda state: "head" in state["runs"].get(bad, {}), **asked)
        assert later["runs"][bad]["head"]["step"] == 60, "it is tried again"


def test_diagnose_speaks_from_a_process_of_its_own(run):
    with Board(run) as board:
        state = board.wait(lambda state: "findings" in only(state), seconds=120)
        found = only(state)["findings"]
        assert found["action"] == "keep" and found["said"]["en"]["verdict"] == "healthy", found
        assert "fell from" in found["said"]["en"]["headline"] and "损失" in found["said"]["zh"]["headline"]
        assert found["said"]["en"]["headline"] != found["said"]["zh"]["headline"]
        assert found["steps"] == 60 and found["facts"]["wanted_ratio"] == [0.25, 0.45]
