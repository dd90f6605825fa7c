"""The texts of both languages: the same keys and {names}, each used in the code and none missing."""

import ast
import importlib.util
import re
import string
from pathlib import Path

import pytest

import llamafactory_obs
from llamafactory_obs.texts import LANGUAGES, language, speaking, text, texts

HERE = Path(llamafactory_obs.__file__).parent
FILES = {lang: {file.stem for file in (HERE / "texts" / lang).glob("*.toml")} for lang in LANGUAGES}
#: the English of these stands in the record
ONLY_CHINESE = {"findings", "sentences"}
FEATURES = sorted(FILES["en"])
CHINESE = re.compile("[\u3400-\u9fff]")


def plain(template: str) -> str:
    """What is left without {names}, `code` and keys."""
    return re.sub(r"\{[^{}]*\}|`[^`]*`|\[/?[^\]]*\]|llamafactory-obs [a-z-]+|--[a-z-]+", "", template)


def test_both_languages_have_the_same_files():
    assert FILES["zh"] - ONLY_CHINESE == FILES["en"]


@pytest.mark.parametrize("feature", FEATURES)
def test_both_languages_have_the_same_keys_and_names(feature):
    english, chinese = texts(feature, "en"), texts(feature, "zh")
    assert english.keys() == chinese.keys()
    wrong = {}
    for key, template in english.items():
        assert isinstance(template, str) and isinstance(chinese[key], str), key
        extra = fields(chinese[key]) - fields(template)
        lost = {name for name in fields(template) - fields(chinese[key]) if name not in PLURALS}
        if extra or lost:
            wrong[key] = (lost, extra)
    assert wrong == {}


#: what only makes an English plural
PLURALS = {"s", "are"}


def fields(template: str) -> set[str]:
    """Its {names}; `{every: 1}` is YAML in a text that is never filled in."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return set()
    return {name for _, name, spec, _ in parsed if name is not None and name.isidentifier() and spec[:1] != " "}


@pytest.mark.parametrize("feature", sorted(FILES["zh"]))
def test_the_chinese_is_chinese_and_the_english_is_not(feature):
    for key, template in texts(feature, "zh").items():
        for one in [template] if isinstance(template, str) else template:
            words = plain(one)
            assert CHINESE.search(words) or not re.search("[a-z]{3,} [a-z]{2,}", words), f"{feature}.{key}: {one}"
    if feature in FILES["en"]:
        for key, template in texts(feature, "en").items():
            assert not CHINESE.search(template), f"{feature}.{key}: {template}"


#: ASCII marks that Chinese does not have beside its characters, a value or a piece of code
NARROW = re.compile("[\u3400-\u9fff][,:;?!(]|[,:;!?)][\u3400-\u9fff]|[}`)][,;:](?![ /\\d])")


@pytest.mark.parametrize("feature", sorted(FILES["zh"]))
def test_marks_in_chinese_are_full_width(feature):
    wrong = []
    for key, template in texts(feature, "zh").items():
        for one in [template] if isinstance(template, str) else template:
            words = re.sub(r"\{[^{}]*\}", "{}", re.sub(r"`[^`]*`|\[!|!\]", "``", one))
            if found := NARROW.search(words):
                wrong.append(f"{feature}.{key}: {found[0]} in {one}")
    assert wrong == []


# ---- the code ------------------------------------------------------------------------------------------------------


def _read() -> tuple[list[tuple[str, str, set[str] | None]], set[str], set[str]]:
    """Of the whole package: the calls `text("feature.key", ...)` as (file, key, names given; None for `**`), the
    strings without a space, and the f-strings that may make a key, with `*` for what is filled in."""
    found, whole, patterns = [], set(), set()
    for file in sorted(HERE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                whole.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                pattern = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
                if re.match(r"[a-z_]+\.", pattern):
                    patterns.add(pattern)
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                key = node.args[0].value
                if called == "text" and isinstance(key, str) and key.partition(".")[0] in FILES["en"]:
                    given = {one.arg for one in node.keywords}
                    found.append((str(file.relative_to(HERE)), key, None if None in given else given - {"lang"}))
    return found, whole, patterns


CALLS, WHOLE, PATTERNS = _read()


def test_the_search_finds_the_calls():
    assert len(CALLS) > 300
    assert any(key == "diagnose.headline.few" for _, key, _ in CALLS)


def test_every_key_in_the_code_exists_and_gets_the_names_it_needs():
    wrong = []
    for file, key, given in CALLS:
        feature, _, name = key.partition(".")
        template = texts(feature, "en").get(name)
        if template is None:
            wrong.append(f"{file}: {key} does not exist")
        elif given is not None and not given >= (fields(template) if given else set()):
            wrong.append(f"{file}: {key} needs {fields(template)}, gets {given}")
        elif given == set() and fields(template):
            wrong.append(f"{file}: {key} is not filled in: {template}")
    assert wrong == []


def test_every_text_is_used():
    """By its whole key, by a key that is put together, or in the script of a page."""
    shapes = [re.compile(re.escape(pattern).replace(r"\*", ".+")) for pattern in PATTERNS]
    scripts = " ".join(file.read_text(encoding="utf-8") for kind in ("js", "html") for file in HERE.rglob(f"*.{kind}"))
    words = set(re.findall(r"\w+", scripts))
    unused = [
        f"{feature}.{key}"
        for feature in FEATURES
        for key in texts(feature, "en")
        if f"{feature}.{key}" not in WHOLE
        and not any(shape.fullmatch(one) for shape in shapes for one in (f"{feature}.{key}", key))
        and not (key.startswith("page.") and _beginnings(key.removeprefix("page.")) & words)
    ]
    assert unused == []


def _beginnings(name: str) -> set[str]:
    """`advice_kill`: also `advice_`, to which a script adds the rest."""
    return {name} | {name[: at + 1] for at, char in enumerate(name) if char == "_"}


# ---- which language ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_CN", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LLAMAFACTORY_OBS_LANG": "zh", "LC_ALL": "C"}, "zh"),
        ({"LLAMAFACTORY_OBS_LANG": "ZH-cn"}, "zh"),
        ({"LLAMAFACTORY_OBS_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LLAMAFACTORY_OBS_LANG": "fr", "LANG": "zh_CN.UTF-8"}, "en"),
    ],
)
def test_the_variable_then_the_locale_says_which(monkeypatch, variables, wanted):
    for name in ("LLAMAFACTORY_OBS_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language() == wanted


def test_within_speaking_it_is_that_language(monkeypatch):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    with speaking("en"):
        assert language() == "en" and text("diagnose.action.kill") == "KILL"
    assert language() == "zh" and text("diagnose.action.kill") == "停止"
    with pytest.raises(ZeroDivisionError), speaking("en"):
        raise ZeroDivisionError
    assert language() == "zh"


def test_an_unknown_key_is_an_error():
    with pytest.raises(KeyError):
        text("diagnose.no_such_text")


def test_the_files_are_in_the_package():
    """As an installed wheel has them: beside the module, found without the repository."""
    import tomllib

    patterns = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    listed = patterns["tool"]["setuptools"]["package-data"]["llamafactory_obs.texts"]
    assert any(Path("en/probe.toml").match(pattern) for pattern in listed)
    assert importlib.util.find_spec("llamafactory_obs.texts") is not None
