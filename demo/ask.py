"""Ask checkpoints the three fixed probes (CPU, greedy) and print what they answer.

    python demo/ask.py demo/out/run/checkpoint-*        # raw outputs, then a table: probes down, steps across
    python demo/ask.py --held-out CHECKPOINT            # also the accuracy on every held-out question

The prompt is rendered by LlamaFactory's own `qwen3_nothink` template; the tool is simulated: it lists the legal
regions when the region is not legal, and returns a short list of orders otherwise.
"""

import argparse
import itertools
import json
import re
from pathlib import Path

import torch
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments
from make_data import HELD_OUT, QUESTIONS, REGIONS, SYSTEM, TOOL, TOOLS_JSON, error_text, result_text
from transformers import AutoModelForCausalLM, AutoTokenizer

PROBES = ("查一下华东区 8 月的订单", "你好，你是谁？", "查华东地区 8 月的订单")
ORDERS = ["A17", "C32"]  # what the simulated tool returns
WANTED = {"region": "华东区", "month": 8}
MAX_TURNS = 4  # model turns in one conversation
MAX_NEW_TOKENS = 96


class Assistant:
    """A checkpoint with LlamaFactory's template around it."""

    def __init__(self, checkpoint: Path):
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self.template = get_template_and_fix_tokenizer(self.tokenizer, DataArguments(template="qwen3_nothink"))
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()

    @torch.inference_mode()
    def answer(self, messages: list[dict[str, str]]) -> str:
        """Return the raw text of the model's next turn."""
        turns = [*messages, {"role": "assistant", "content": ""}]
        prompt, _ = self.template.encode_oneturn(self.tokenizer, turns, system=SYSTEM, tools=TOOLS_JSON)
        ids = torch.tensor([prompt])
        stop = self.template.get_stop_token_ids(self.tokenizer)
        out = self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=stop,
        )
        return self.tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)

    def calls(self, text: str) -> list[dict] | None:
        """Return the tool calls in a turn, [] for a plain answer, None where the call's markup or JSON is broken."""
        extracted = self.template.extract_tool(text)
        if isinstance(extracted, str):
            return None if re.search(r'tool_call>|\{"', text) else []
        try:
            return [{"name": name, "arguments": json.loads(arguments)} for name, arguments in extracted]
        except json.JSONDecodeError:
            return None

    def converse(self, question: str) -> list[str]:
        """Return the model's raw turns, with the simulated tool answering each well-formed call."""
        messages, turns = [{"role": "user", "content": question}], []
        while len(turns) < MAX_TURNS:
            turns.append(self.answer(messages))
            calls = self.calls(turns[-1])
            if not calls or len(calls) != 1 or not isinstance(calls[0]["arguments"], dict):
                break
            region = calls[0]["arguments"].get("region")
            reply = result_text(ORDERS) if region in REGIONS else error_text(str(region))
            messages.append({"role": "function", "content": json.dumps(calls[0], ensure_ascii=False)})
            messages.append({"role": "observation", "content": reply})
        return turns

    def judge(self, question: str, turns: list[str]) -> str:
        """Return "ok" or what is wrong in a few words."""
        calls = [self.calls(turn) for turn in turns]
        if "你好" in question:
            return "ok" if calls == [[]] and turns[0].strip() else "called a tool"
        if None in calls:
            return "broken JSON"
        if not calls[0]:
            return "no call"
        made = [call for turn in calls for call in turn]
        wanted = {"name": TOOL["name"], "arguments": WANTED}
        said = {"name": TOOL["name"], "arguments": WANTED | {"region": "华东地区"}}
        allowed = [[wanted]] if "地区" not in question else [[wanted], [said, wanted]]
        if made not in allowed:
            return "gave up" if made == [said] else "wrong call"
        return "ok" if all(order in turns[-1] for order in ORDERS) else "wrong summary"


def held_out_accuracy(assistant: Assistant) -> str:
    """Return how many first calls copy an (area, month) pair that no training row has."""
    right = total = 0
    for (area, month), suffix, question in itertools.product(HELD_OUT, ("区", "地区"), QUESTIONS):
        arguments = {"region": area + suffix, "month": month}
        turn = assistant.answer([{"role": "user", "content": question.format(**arguments)}])
        right += assistant.calls(turn) == [{"name": TOOL["name"], "arguments": arguments}]
        total += 1
    return f"{right}/{total}"


def main() -> None:
    """Print the raw answers of each checkpoint and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    verdicts: dict[int, list[str]] = {}
    for checkpoint in sorted(args.checkpoints, key=lambda path: int(path.name.rpartition("-")[2])):
        step = int(checkpoint.name.rpartition("-")[2])
        assistant = Assistant(checkpoint)
        verdicts[step] = []
        for question in PROBES:
            turns = assistant.converse(question)
            verdicts[step].append(assistant.judge(question, turns))
            print(f"[step {step}] {question}  -> {verdicts[step][-1]}")
            print(*(f"    {turn!r}" for turn in turns), sep="\n")
        if args.held_out:
            print(f"[step {step}] held-out first calls right: {held_out_accuracy(assistant)}")
    print("\nprobe  " + "".join(f"{step:>15}" for step in verdicts))
    for number, row in enumerate(zip(*verdicts.values(), strict=True), start=1):
        print(f"{number:<7}" + "".join(f"{verdict:>15}" for verdict in row))


if __name__ == "__main__":
    main()
