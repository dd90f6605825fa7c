"""`--help` of every verb in both languages: whole, in one language, laid out by cells; a wrong call stays English."""

import argparse
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from llamafactory_obs import cli
from llamafactory_obs.parser import Parser
from llamafactory_obs.texts import speaking, texts

CHINESE = re.compile("[\u3400-\u9fff]")
#: ASCII marks beside Chinese
NARROW = re.compile("[\u3400-\u9fff][,:;?!(]|[,:;!?)][\u3400-\u9fff]")


def parsers() -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """The command line and each of its verbs, also those of a verb, by the words that lead to it."""
    return dict(_below(cli._parser(), ()))


def _below(parser, words):
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                yield from _below(one, (*words, name))


with speaking("en"):
    VERBS = sorted(parsers())


@pytest.fixture(params=VERBS, ids=" ".join)
def verb(request):
    return request.param


@pytest.fixture
def shown(monkeypatch, capsys):
    """What `--help` of a verb prints in a language, in a terminal of so many columns."""

    def show(words, lang, columns=80):
        monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", lang)
        monkeypatch.setenv("COLUMNS", str(columns))
        assert cli.main([*words, "--help"]) == 0
        return capsys.readouterr().out

    return show


def test_the_verbs_are_found():
    assert len(VERBS) == 31 and {(), ("train",), ("diagnose",), ("drill", "oom"), ("drill", "resume")} <= set(VERBS)


# ---- the words ------------------------------------------------------------------------------------------------------


def test_in_chinese_each_word_of_help_is_chinese(verb, monkeypatch):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    parser = parsers()[verb]
    said = {action.dest: action.help for action in parser._actions if action.help not in (None, argparse.SUPPRESS)}
    said |= {group.title: group.title for group in parser._action_groups}
    said |= {"description": parser.description, "epilog": parser.epilog or "无"}
    assert {name: one for name, one in said.items() if not CHINESE.search(one)} == {}


def test_in_chinese_there_is_no_english_sentence_and_no_narrow_mark(shown, verb):
    help_text = shown(verb, "zh", 1000)  # sentences whole
    assert help_text.startswith("用法：llamafactory-obs ") and "\n选项：\n" in help_text
    _, _, body = help_text.partition("\n\n")
    assert NARROW.findall(body) == []
    prose = re.sub(r"`[^`]*`|\{[^{}]*\}|--[a-z-]+|\b[A-Z][A-Z_]*\b", "", body)
    assert re.findall("[A-Za-z]{2,} [a-z]+.*", prose) == []


def test_in_english_there_is_no_chinese(shown, verb):
    help_text = shown(verb, "en")
    assert help_text.startswith("usage: llamafactory-obs ") and "\noptions:\n  -h, --help" in help_text
    assert not CHINESE.search(help_text)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_option_says_its_own_text(lang, verb):
    """The key is the name of the verb and of the option, or of an option that several verbs share."""
    said = texts("help", lang)
    with speaking(lang):
        parser = parsers()[verb]
    table = ".".join(verb)
    for action in parser._actions:
        if action.help in (None, argparse.SUPPRESS) or action.dest == "version":
            continue
        name = action.option_strings[-1 if action.dest == "help" else 0].lstrip("-") if action.option_strings else ""
        name = name or action.dest
        incident = f"help.drill.incident.{name}" if verb[:1] == ("drill",) and verb != ("drill", "resume") else ""
        keys = (f"{table}.{name}", incident.removeprefix("help."), f"common.{name}", f"argparse.{name}")
        own = next(said[key] for key in keys if key in said)
        filled_in = re.sub(r"\\{[a-z]+\\}", ".+", re.escape(own))
        assert re.fullmatch(filled_in, action.help), f"{table} {name}: {action.help}"
    assert parser.description == said[f"{table}.about" if table else "about"]


# ---- the lines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 100])
def test_no_line_of_the_chinese_is_wider_than_the_screen(shown, verb, columns):
    lines = shown(verb, "zh", columns).splitlines()
    assert [line for line in lines if cell_len(line) > columns] == []


def test_chinese_columns_stand_below_each_other(shown):
    lines = shown(("replay",), "zh").splitlines()
    usage = lines[: lines.index("")]
    begin = cell_len("用法：llamafactory-obs replay ")
    assert len(usage) > 2 and all(line[:begin].isspace() and line[begin] != " " for line in usage[1:])
    at = lines.index("选项：")
    options = lines[at + 1 :]
    assert {cell_len(re.match(r"  -.*?  +| +", line)[0]) for line in options} == {24}
    assert any(line.startswith(" " * 24) for line in options), "one help text takes two lines"


def test_english_is_laid_out_as_by_argparse(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    settings = {"prog": "tool", "description": "self-contained words " * 12, "epilog": "The end. " * 12}
    with speaking("en"):
        made = []
        for kind in (Parser, argparse.ArgumentParser):
            parser = kind(**settings)
            parser.add_argument("paths", nargs="+", metavar="DIR_OR_FILE", help="a well-known, long text " * 4)
            for number in range(6):
                parser.add_argument(f"--option-{number}", metavar="N", help="number " * 12)
            parser.add_subparsers(metavar="VERB").add_parser("verb", help="it does it").add_argument("--all")
            made.append(parser.format_help())
    assert made[0] == made[1]


# ---- when -----------------------------------------------------------------------------------------------------------


def test_a_screen_without_chinese_gets_english_and_other_verbs_are_not_loaded():
    code = "import sys, llamafactory_obs.cli as c; c.main(['diagnose', '--help']);"
    code += "print('loaded', [m for m in sys.modules if m.startswith('llamafactory_obs') and m.endswith('.command')])"
    env = {"LLAMAFACTORY_OBS_LANG": "zh", "PYTHONIOENCODING": "ascii", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.startswith("usage: llamafactory-obs diagnose") and "\\u" not in done.stdout
    assert done.stdout.rstrip().endswith("loaded ['llamafactory_obs.diagnosis.command']")


@pytest.mark.parametrize(
    "words",
    [[], ["doctro"], ["doctor", "--jsno"], ["board", "x", "--port", "y"], ["drill"], ["compare"], ["replay", "x"]],
)
def test_a_wrong_call_is_told_in_english(monkeypatch, capsys, words):
    monkeypatch.setenv("LLAMAFACTORY_OBS_LANG", "zh")
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.isascii() and err.startswith("llamafactory-obs: ") and err.count("\n") == 1
