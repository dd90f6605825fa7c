"""Write the demo's model: a random Qwen3 of about 1M parameters with its own byte-level BPE, trained on demo/data.

    python demo/make_model.py demo/out/model

The pre-tokenizer keeps whole numbers, the area names and English phrases together, so that a question's
arguments are single tokens and the long fixed tool prompt of `qwen3_nothink` is short. The chat template renders
exactly as LlamaFactory's `qwen3_nothink` does in training.
"""

import argparse
import json
import re
from pathlib import Path

import torch
from make_data import AREAS, DATA_DIR
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # as in Qwen3: skipped when decoding
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")  # kept when decoding
VOCAB_SIZE = 800

PRE_TOKENS = "|".join(
    (
        "|".join(AREAS),  # 华东 in 华东区 and in 华东地区 is the same token
        "[地大]?区",
        f"(?:(?!{'|'.join(AREAS)}|[地大]?区)\\p{{Han}})+",
        r"[A-Z]?\p{N}+",  # 8 and A17
        r"[A-Za-z_]+(?: [A-Za-z_]+)*",
        r" ?[^\s\p{L}\p{N}]+",
        r"\s+",
    )
)

CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content -%}{%- set turns = messages[1:] -%}
{%- else -%}
    {%- set system = '' -%}{%- set turns = messages -%}
{%- endif -%}
{%- if system or tools -%}
    {{- '<|im_start|>system\\n' + system -}}
    {%- if tools -%}
        {{- '\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' -}}
        {{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}
        {%- for tool in tools -%}
            {%- set tool = tool if tool.type == 'function' else {'type': 'function', 'function': tool} -%}
            {{- '\\n' + tool | tojson -}}
        {%- endfor -%}
        {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments' -}}
        {{- ' within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": ' -}}
        {{- '<args-json-object>}\\n</tool_call>' -}}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for turn in turns -%}
    {%- if turn.role == 'tool' -%}
        {{- '<|im_start|>user\\n<tool_response>\\n' + turn.content + '\\n</tool_response><|im_end|>\\n' -}}
    {%- elif turn.tool_calls -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- for call in turn.tool_calls -%}
            {%- set call = call.function if call.function else call -%}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}\\n</tool_call>' + ('' if loop.last else '\\n') -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def chat_messages(row: dict) -> list[dict]:
    """Turn a sharegpt row into messages for a chat template."""
    messages = [{"role": "system", "content": row["system"]}] if row["system"] else []
    roles = {"human": "user", "gpt": "assistant", "observation": "tool"}
    for turn in row["conversations"]:
        if turn["from"] == "function_call":
            messages.append({"role": "assistant", "content": "", "tool_calls": [json.loads(turn["value"])]})
        else:
            messages.append({"role": roles[turn["from"]], "content": turn["value"]})
    return messages


def wrap(core: Tokenizer) -> PreTrainedTokenizerFast:
    """Give the bare tokenizer its special roles and the chat template."""
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def make_tokenizer(rows: list[dict]) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE on the rendered dialogues."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    renderer = wrap(core)
    texts = (
        renderer.apply_chat_template(chat_messages(row), tools=json.loads(row["tools"]), tokenize=False) for row in rows
    )
    special = re.compile("|".join(map(re.escape, CONTROL_TOKENS + MARKUP_TOKENS)))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(CONTROL_TOKENS + MARKUP_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator((piece for text in texts for piece in special.split(text)), trainer)
    core.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
    core.add_tokens([AddedToken(token, special=False) for token in MARKUP_TOKENS])
    return wrap(core)


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Return the random model."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def main() -> None:
    """Write model and tokenizer into the folder on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the random weights")
    args = parser.parse_args()
    tokenizer = make_tokenizer(json.loads((DATA_DIR / "orders.json").read_text(encoding="utf-8")))
    model = make_model(tokenizer, args.seed)
    tokenizer.save_pretrained(args.out)
    model.save_pretrained(args.out)
    print(f"{args.out}: {model.num_parameters():,} parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    main()
