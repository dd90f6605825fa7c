"""What stands in English in a record, and what charts say, reads in Chinese; programs read the same in both."""

import ast
import html
import json
import re
import string
from pathlib import Path

import pytest
import yaml
from page_folder import event, probe, record, row
from rich.cells import cell_len

import llamafactory_obs
from llamafactory_obs import cli
from llamafactory_obs.diagnosis.judge import judge
from llamafactory_obs.diagnosis.page import render
from llamafactory_obs.logs.read import read
from llamafactory_obs.texts import remembering, speaking, texts
from llamafactory_obs.texts.findings import title, told
from llamafactory_obs.texts.sentences import sentence

HERE = Path(llamafactory_obs.__file__).parent
CHINESE = re.compile("[\u3000-\u9fff\uff00-\uffef]")
SENTENCES = texts("sentences", "zh")
NO_CARD = "no CUDA device: the process' own memory (RSS) is recorded instead of VRAM"
#: three English words in a row, where keys, code and paths are taken out
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b")


def parts(template: str) -> tuple[list[str], set[str]]:
    """The literal parts and the {names} of a template."""
    parsed = list(string.Formatter().parse(template))
    return [one for one, *_ in parsed if one], {name for _, name, *_ in parsed if name}


# ---- sentences of a record -----------------------------------------------------------------------------------------


def test_every_sentence_is_one_that_the_code_says():
    """All its words stand in the strings of one file."""
    words = []
    for file in HERE.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        strings = [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        words.append(set(re.findall(r"[A-Za-z]{2,}", " ".join(strings))))
    said = {english: set(re.findall(r"[A-Za-z]{2,}", " ".join(parts(english)[0]))) for english in SENTENCES}
    assert [english for english, own in said.items() if not any(own <= file for file in words)] == []


def test_both_languages_fill_in_the_same():
    for english, chinese in SENTENCES.items():
        assert parts(english)[1] == parts(chinese)[1], english
        assert parts(english)[0] and not CHINESE.search(english), english


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("no CUDA device: no GPU columns, and no word on its utilisation", "没有 CUDA 设备：没有 GPU 的列"),
        ("1.03 GiB at a batch of 4 x 56", "1.03 GiB，批的形状 4 x 56"),
        ("month is 7, expected 8; year is missing, expected 2024", "month 为 7，应为 8；缺少 year，应为 2024"),
        ("checkpoint-3 abandoned: no weights; the training is over", "checkpoint-3 已放弃：没有权重；训练已结束"),
        ("switched off after ValueError: a; training goes on", "因 ValueError: a 而关闭；训练照常进行"),
        ("the disk is full; training goes on", "the disk is full；训练照常进行"),
        ("what a callback of somebody else says", "what a callback of somebody else says"),
    ],
)
def test_a_sentence_of_the_record_in_chinese(english, chinese):
    assert sentence(english, "zh").startswith(chinese) and sentence(english, "en") == english


def test_an_event_is_told_by_its_sentence():
    said = told(
        "sources", 0, "no CUDA device: no GPU columns, and no word on its utilisation", {"unread": {}}, lang="zh"
    )
    assert said.startswith("没有 CUDA 设备") and title("memory source", "zh") == "显存来源"
    assert title("vram switched off", "zh") == "vram 已关闭" and title("vram switched off", "en") == "vram switched off"


def test_what_was_told_of_a_record_is_known_in_english():
    """As a part of another text, too, which is kept."""
    with speaking("zh"), remembering() as english:
        told_ = sentence("adapter_model.safetensors is missing")
        assert told_ == "缺少 adapter_model.safetensors"
        assert english(f"a: {told_}") == "a: adapter_model.safetensors is missing"


# ---- pages ---------------------------------------------------------------------------------------------------------


def shown(page_: str) -> str:
    """What a person reads of a page: text and the words for screen readers; not code, raw output or data."""
    body = re.sub(r"<style.*?</style>|<script.*?</script>|<pre>.*?</pre>|<code>.*?</code>", "", page_, flags=re.DOTALL)
    labels = re.findall(r'(?:title|aria-label)="([^"]*)"', body)
    return html.unescape("\n".join([re.sub(r"<[^>]+>", "\n", body), *labels]))


@pytest.fixture
def run(tmp_path) -> Path:
    """A record with all charts, a resume, a spike, events and probes."""
    steps = [row(n, **({"train/loss": 9.0} if 60 <= n < 64 else {}), segment=int(n > 50)) for n in range(1, 101)]
    steps[20]["train/grad_norm"] = float("nan")
    clipped = {"share": 1.0, "limit": 1.0, "window": 100}
    events = [
        event(1, kind="note", title="memory source", text=NO_CARD),
        event(9, kind="memory_peak", title="new peak", text="1.03 GiB at a batch of 4 x 56"),
        event(20, kind="checkpoint", title="checkpoint saved", text="out/checkpoint-20", name="recorder"),
        event(30, "warn", title="always clipped", text="All were clipped.", evidence=clipped),
    ]
    probes = [probe(20, "call", True, "yes"), probe(40, "call", False, "no"), probe(40, "old", True, "x", suite="o")]
    return record(tmp_path / "run", steps=steps, events=events, probes=probes)


def test_a_page_is_chinese_but_for_names(run):
    curves = read(run)
    pages = {}
    for lang in ("en", "zh"):
        with speaking(lang):
            pages[lang] = render(curves, judge(curves))
    assert '<html lang="zh">' in pages["zh"] and '<html lang="en">' in pages["en"]
    left = [line for line in shown(pages["zh"]).splitlines() if ENGLISH.search(line) and line not in LIMITS(curves)]
    assert left == []
    for words in (
        "梯度范数（裁剪前）",
        "对数刻度",
        "每秒词元数",
        "单步耗时的构成",
        "前向",
        "发生的事",
        "显存来源",
        "没有 CUDA 设备",
        "全程",
        "末值",
    ):
        assert words in pages["zh"], words
    for words in (
        "Gradient norm, before clipping",
        "log scale",
        "forward",
        "What happened",
        "whole run",
        "> last<",
        "memory source",
    ):
        assert words in pages["en"], words
    assert not CHINESE.search(shown(pages["en"]))


def LIMITS(curves) -> str:
    """What findings say of their limits: it stays English."""
    return "\n".join(f"{one.limits}\n{one.evidence.get('limits', '')}" for one in judge(curves).findings)


def test_what_the_script_of_a_page_reads_is_the_same(run):
    curves, numbers = read(run), {}
    for lang in ("en", "zh"):
        with speaking(lang):
            made = render(curves, judge(curves))
        blocks = re.findall(r'<script type="application/json" class="data">(.*?)</script>', made, re.DOTALL)
        found = [json.loads(block) for block in blocks]
        numbers[lang] = [[(one["s"], one["v"], one["b"]) for one in block.get("series", ())] for block in found]
        words = json.loads(re.search(r'class="words">(.*?)</script>', made)[1])
        assert CHINESE.search("".join(words.values())) is None or lang == "zh"
        assert set(words) == {"at", "cell", "missing", "copied", "passed", "button", "asked", "output"}
        assert all(f"said.{word}" in (HERE / "charts" / "page.js").read_text() for word in words)
        ids = set(re.findall(r'<figure class="[^"]*" id="([^"]+)"', made))
        assert {"loss", "grad-norm", "lr", "mask", "vram", "tokens", "step-time", "gpu"} <= ids
    assert numbers["en"] == numbers["zh"] and any(numbers["en"])


def test_a_timeline_picture_is_chinese_and_fits(run, monkeypatch, capsys):
    pictures = {}
    for lang in ("en", "zh"):
        monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
        file = run.parent / f"{lang}.svg"
        assert cli.main(["timeline", str(run), "--around", "60", "--svg", str(file)]) == 0
        pictures[lang] = re.findall(r"<text[^>]*>(.*?)</text>", file.read_text(encoding="utf-8"))
    assert "step 60" in pictures["en"] and "第 60 步" in pictures["zh"]
    assert [one for one in pictures["zh"] if ENGLISH.search(one)] == []
    assert max(map(cell_len, pictures["zh"])) <= 150, "the picture is 1000 wide"


# ---- programs read the same, people their language -----------------------------------------------------------------


def test_the_next_config_is_the_same_but_for_its_comments(run, monkeypatch, capsys):
    rows = [row(n, **({"train/loss": 9.0} if n > 60 else {})) for n in range(1, 161)]
    run = record(run.parent / "bad", steps=rows)
    (run.parent / "run.yaml").write_text("# mine\nlearning_rate: 1.0e-4\nstage: sft\noutput_dir: out\n")
    made = {}
    for lang in ("en", "zh"):
        monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
        file = run.parent / f"{lang}.yaml"
        cli.main(["diagnose", str(run), "--write-config", str(file), "--from", str(run.parent / "run.yaml")])
        made[lang] = file.read_text(encoding="utf-8")
    assert yaml.safe_load(made["en"]) == yaml.safe_load(made["zh"])
    assert "# was " in made["en"] and not CHINESE.search(made["en"])
    assert "# 原为 " in made["zh"] and "# mine" in made["zh"] and " at step " not in made["zh"]


def test_a_bundle_is_the_same_but_for_its_sheet(run, monkeypatch, capsys):
    import zipfile

    found = {}
    for lang in ("en", "zh"):
        monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
        file = run.parent / f"{lang}.zip"
        assert cli.main(["report", str(run), "--bundle", str(file)]) == 0
        with zipfile.ZipFile(file) as archive:
            found[lang] = {name.partition("/")[2]: archive.read(name).decode() for name in archive.namelist()}
    english, chinese = found["en"], found["zh"]
    assert english.keys() == chinese.keys()
    other = {name for name in english if english[name] != chinese[name]}
    assert other == {"sheet.md", "sheet.html", "manifest.json"}, "the manifest has their hashes"
    assert CHINESE.search(chinese["sheet.md"]) and not CHINESE.search(english["sheet.md"])
    assert json.loads(english["data_card.json"]) == json.loads(chinese["data_card.json"])


def test_a_probe_result_is_shown_in_both_languages(run, monkeypatch):
    from llamafactory_obs.probe.in_words import detail_in_words

    detail = "wrong_arguments: month is 7, expected 8 (and 2 more)"
    assert detail_in_words(detail, "en") == detail
    assert detail_in_words(detail, "zh") == "参数错误：month 为 7，应为 8（另有 2 个）"
    assert detail_in_words("my_error: as it is", "zh") == "my_error: as it is"


def test_the_smoke_gate_judges_the_same_in_both_languages(lora_smoke, tmp_path):
    from llamafactory_obs.preflight.smoke.gate import smoke_gate

    copy, gates = lora_smoke.copy(tmp_path), {}
    (copy.checkpoint() / "adapter_model.safetensors").unlink()
    for lang in ("en", "zh"):
        with speaking(lang):
            gates[lang] = smoke_gate(
                copy.config(), copy.folder, longest_tokens=43, limit_gib=24.0, margin_gib=1.0
            ).gate()
    facts = [[(one["name"], one["status"]) for one in gates[lang]["checks"]] for lang in ("en", "zh")]
    assert facts[0] == facts[1] and gates["en"]["status"] == gates["zh"]["status"] == "fail"
    failed = [[one["detail"] for one in gates[lang]["checks"] if one["status"] == "fail"] for lang in ("en", "zh")]
    assert not any(map(CHINESE.search, failed[0])) and all(map(CHINESE.search, failed[1]))
