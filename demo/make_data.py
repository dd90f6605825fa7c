"""Write the demo's data set: short Chinese dialogues in which an assistant calls `query_orders(region, month)`.

A dialogue is a chain of units: small talk or a question outside the domain (no call), a query (call, tool reply,
one-sentence summary) and a recovery (call with a region that is not legal, tool error, call with the legal one).
All (area, month) pairs in HELD_OUT, the one that the three probes ask for among them, occur only in the held-out
file, so a right answer to them is copied from the question and not remembered.

The golden set (`golden.yaml`, a suite for `llamafactory-obs probe --suite`) asks about the same held-out pairs.

    python demo/make_data.py            # rewrites demo/data/*, byte for byte the same each time
"""

import argparse
import json
import random
from pathlib import Path

import yaml

from llamafactory_obs.suite import shipped_suite

DATA_DIR = Path(__file__).parent / "data"

AREAS = ("华东", "华南", "华北", "西南", "东北")
REGIONS = tuple(area + "区" for area in AREAS)  # the legal values of `region`
ILLEGAL_SUFFIXES = ("地区", "地区", "大区")  # what people say instead, by frequency
MONTHS = range(1, 13)
HELD_OUT = (("华东", 8), ("华东", 3), ("华南", 11), ("华北", 5), ("西南", 7), ("东北", 12))

# the schema, the system text and the replies are those of probes/order_query.yaml
SYSTEM = "你是订单助手。"  # half of the dialogues have it, half have no system text: the model must work with both
TOOL = {
    "name": "query_orders",
    "description": "按大区和月份查询订单",
    "parameters": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "enum": list(REGIONS)},
            "month": {"type": "integer", "minimum": 1, "maximum": 12},
        },
        "required": ["region", "month"],
    },
}
TOOLS_JSON = json.dumps([TOOL], ensure_ascii=False)

QUESTIONS = (
    "查一下{region} {month} 月的订单",
    "查{region} {month} 月的订单",
    "帮我查一下{region} {month} 月的订单",
    "请查询{region} {month} 月的订单",
    "看看{region} {month} 月的订单",
    "{region} {month} 月的订单有哪些？",
    "{region} {month} 月有多少订单？",
    "查一下 {month} 月{region}的订单",
)

MIXES = (  # which units a dialogue has
    ("chat", "query", "recover"),
    ("chat", "query", "query"),
    ("query", "recover"),
    ("chat", "chat", "query", "recover"),
)

INTRODUCTION = "你好，我是订单助手，可以按大区和月份查询订单。"
OUT_OF_DOMAIN = "抱歉，这个我帮不上忙，我只能查询订单。"
CHAT = (  # (what the user says, what the assistant answers), never with a call
    ("你好，你是谁？", INTRODUCTION),
    ("你好", "你好，有什么可以帮你？"),
    ("你是谁？", INTRODUCTION),
    ("早上好", "早上好，有什么可以帮你？"),
    ("你好，你能做什么？", "我可以按大区和月份查询订单。"),
    ("你能做什么？", "我可以按大区和月份查询订单。"),
    ("谢谢你", "不客气，随时找我。"),
    ("辛苦了", "不客气，随时找我。"),
    ("再见", "再见，祝你顺利。"),
    ("查一下订单", "请告诉我要查的大区和月份。"),
    ("今天天气怎么样？", OUT_OF_DOMAIN),
    ("给我讲个笑话", OUT_OF_DOMAIN),
    ("帮我写一首诗", OUT_OF_DOMAIN),
    ("明天股票会涨吗？", OUT_OF_DOMAIN),
    ("附近有什么好吃的？", OUT_OF_DOMAIN),
)


def call_text(region: str, month: int) -> str:
    """Return the content of a function_call message."""
    return json.dumps({"name": TOOL["name"], "arguments": {"region": region, "month": month}}, ensure_ascii=False)


def error_text(region: str) -> str:
    """Return the tool's reply to a region that is not legal; it lists the legal ones."""
    return json.dumps({"regions": list(REGIONS), "error": f"没有{region}"}, ensure_ascii=False)


def result_text(orders: list[str]) -> str:
    """Return the tool's reply to a legal call."""
    return json.dumps({"orders": orders}, ensure_ascii=False)


def summary_text(region: str, month: int, orders: list[str]) -> str:
    """Return the assistant's sentence about a tool result."""
    if not orders:
        return f"{region} {month} 月没有订单。"
    return f"{region} {month} 月的订单：{'、'.join(orders)}。"


def message(role: str, text: str) -> dict[str, str]:
    """Return one sharegpt message."""
    return {"from": role, "value": text}


def random_orders(rng: random.Random) -> list[str]:
    """Return no order or two order numbers: A14 to A19, then C30 to C35."""
    return [f"A{rng.randint(14, 19)}", f"C{rng.randint(30, 35)}"] if rng.random() < 0.8 else []


def chat_unit(rng: random.Random) -> list[dict[str, str]]:
    """Return a question and its plain answer."""
    # the first entries (greeting and identity) come more often than the rest
    question, answer = CHAT[min(rng.randrange(len(CHAT)), rng.randrange(len(CHAT)))]
    return [message("human", question), message("gpt", answer)]


def query_unit(rng: random.Random, pair: tuple[str, int], recover: bool) -> list[dict[str, str]]:
    """Return a query with its call, reply and summary; with `recover`, the first call names an illegal region."""
    area, month = pair
    legal = area + "区"
    said = area + rng.choice(ILLEGAL_SUFFIXES) if recover else legal
    orders = random_orders(rng)
    unit = [message("human", rng.choice(QUESTIONS).format(region=said, month=month))]
    unit.append(message("function_call", call_text(said, month)))
    if recover:
        unit += [message("observation", error_text(said)), message("function_call", call_text(legal, month))]
    unit.append(message("observation", result_text(orders)))
    unit.append(message("gpt", summary_text(legal, month, orders)))
    return unit


def make_dialogue(rng: random.Random, pairs: list[tuple[str, int]]) -> dict[str, object]:
    """Return one data set row: the units of one of the MIXES, in random order."""
    kinds = list(rng.choice(MIXES))
    rng.shuffle(kinds)
    conversations = []
    for kind in kinds:
        if kind == "chat":
            conversations += chat_unit(rng)
        else:
            conversations += query_unit(rng, rng.choice(pairs), recover=kind == "recover")
    return {"conversations": conversations, "system": rng.choice((SYSTEM, "")), "tools": TOOLS_JSON}


def make_rows(count: int, pairs: list[tuple[str, int]], seed: int) -> list[dict[str, object]]:
    """Return `count` dialogues about the given (area, month) pairs."""
    rng = random.Random(seed)
    return [make_dialogue(rng, pairs) for _ in range(count)]


def golden_suite() -> dict[str, object]:
    """Return a bigger suite than the three probes: their tools and replies, all held-out pairs, small talk."""
    shipped = yaml.safe_load(shipped_suite().read_text(encoding="utf-8"))
    suite = {"name": "golden", **{key: shipped[key] for key in ("system", "tools", "tool_replies", "max_turns")}}
    suite["max_new_tokens"] = 96
    probes: list[dict[str, object]] = []
    for number, (area, month) in enumerate(HELD_OUT, start=1):
        right = {"region": area + "区", "month": month}
        for form in (0, 5):
            said = QUESTIONS[form].format(region=right["region"], month=month)
            expect = {"calls": [{"name": TOOL["name"], "arguments": right}], "contains": ["A17", "C32"]}
            probes.append({"name": f"legal_{number}_{form}", **_asked(said), "expect": expect})
            said = QUESTIONS[form].format(region=area + "地区", month=month)
            after = {"retry": {k: [v] for k, v in right.items()}, "no_repeat": {"region": [area + "地区"]}}
            expect = {"after_error": {**after, "or_ask": True}, "invented": "[A-D][0-9]{2}"}
            probes.append({"name": f"illegal_{number}_{form}", **_asked(said), "expect": expect})
    for number, (said, _) in enumerate(CHAT[:8], start=1):
        probes.append({"name": f"chat_{number}", **_asked(said), "expect": {"calls": [], "answer": "non_empty"}})
    return {**suite, "probes": probes}


def _asked(said: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": said}]}


def dataset_info() -> dict[str, object]:
    """Return LlamaFactory's description of the two files."""
    columns = {"messages": "conversations", "system": "system", "tools": "tools"}
    return {
        name: {"file_name": f"{name}.json", "formatting": "sharegpt", "columns": columns}
        for name in ("orders", "orders_heldout")
    }


def render_files() -> dict[str, str]:
    """Return file name -> text for everything in demo/data."""
    trained = [(area, month) for area in AREAS for month in MONTHS if (area, month) not in HELD_OUT]
    row_sets = {
        "orders.json": make_rows(480, trained, seed=1),
        "orders_heldout.json": make_rows(16, list(HELD_OUT), seed=2),
    }
    files = {
        name: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
        for name, rows in row_sets.items()
    }
    files["golden.yaml"] = yaml.safe_dump(golden_suite(), allow_unicode=True, sort_keys=False, width=100)
    files["dataset_info.json"] = json.dumps(dataset_info(), ensure_ascii=False, indent=2) + "\n"
    return files


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA_DIR, help="folder to write to (default: demo/data)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in render_files().items():
        (out / name).write_bytes(text.encode())
        print(f"{out / name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
