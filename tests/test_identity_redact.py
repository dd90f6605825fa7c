"""No secret reaches a record, and no innocent key loses its value."""

import enum
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from llamafactory_obs.identity.redact import HIDDEN, is_secret_key, redact

SECRET = (
    "key "
    "token hf_token hub_token hf_hub_token ms_hub_token push_to_hub_token api_key swanlab_api_key WANDB_API_KEY apiKey "
    "OPENAI_API_KEY secret client_secret swanlab_lark_secret password db_password passwd credential aws_credentials "
    "webhook swanlab_lark_webhook_url access_key aws_secret_access_key access_key_id accessToken auth_token "
    "use_auth_token private_key Authorization x-api-key hub_tokens bearer ssh_pwd"
)
INNOCENT = (
    "max_new_tokens num_input_tokens_seen include_num_input_tokens_seen pad_token eos_token bos_token unk_token "
    "mask_token image_token include_tokens_per_second include_effective_tokens_per_second tokenizer_name tokenizer "
    "skip_special_tokens add_tokens add_special_tokens new_special_tokens_config split_special_tokens "
    "stop_token_ids token_type_ids pad_token_id average_tokens_across_devices ignore_pad_token_for_loss "
    "use_fast_tokenizer tokenized_path metric_key keys keyword_args monkey author authored passed compass "
    "label_names resume_from_checkpoint secretary next_token prompt_token video_token stop_token"
)


@pytest.mark.parametrize("key", SECRET.split())
def test_secret_keys(key):
    assert is_secret_key(key)
    assert redact({"args": [{key: "value-1"}]}) == {"args": [{key: HIDDEN}]}


@pytest.mark.parametrize("key", INNOCENT.split())
def test_innocent_keys(key):
    assert redact({key: "value-1"}) == {key: "value-1"}
    assert redact({key: 7}) == {key: 7}


def test_whether_a_secret_was_given_stays_visible():
    got = redact({"token": None, "api_key": "", "use_auth_token": True, "password": 123456, "credentials": {"a": "b"}})
    assert got == {"token": None, "api_key": "", "use_auth_token": True, "password": HIDDEN, "credentials": HIDDEN}


KEY40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("https://bob:pa55@host.io/x", "https://***@host.io/x"),
        ("https://ghp_abc@host.io/x.git", "https://***@host.io/x.git"),
        ("git+ssh://git:pw@host/x", "git+ssh://***@host/x"),
        ("https://h/x?a=1&token=abc&b=2", "https://h/x?a=1&token=***&b=2"),
        ("https://h/x?access_token=abc", "https://h/x?access_token=***"),
        ("https://h/x?X-Amz-Signature=abc#f", "https://h/x?X-Amz-Signature=***#f"),
        ("https://h/x?api_key=abc", "https://h/x?api_key=***"),
        ("https://h/x?max_tokens=5&page=2", "https://h/x?max_tokens=5&page=2"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/***"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/ab-cd", "https://open.feishu.cn/open-apis/bot/***"),
        ("run with hf_abcdefghijklmnopqrstuvwxyz0123456789 now", "run with *** now"),
        ("sk-proj-abcd1234efgh5678ijkl", "***"),
        ("key=AKIAIOSFODNN7EXAMPLE", "key=***"),
        ("Bearer abcdefgh12345678", "Bearer ***"),
        ("hf_hub", "hf_hub"),
        ("task-1234567890abcdefghij", "task-1234567890abcdefghij"),
        ("/data/disk-1234567890abcdefgh/sk-learn", "/data/disk-1234567890abcdefgh/sk-learn"),
        ("user@host", "user@host"),
        ("https://h/a@b", "https://h/a@b"),
        (KEY40, KEY40),  # could be a commit
    ],
)
def test_secrets_inside_text(text, want):
    assert redact(text) == want
    assert redact({"a": {"url": text}}) == {"a": {"url": want}}


def test_forty_hex_digits_under_a_key_of_a_tracker_are_a_key():
    assert redact({"wandb": KEY40, "commit": KEY40, "login_key": KEY40}) == {
        "wandb": HIDDEN,
        "commit": KEY40,
        "login_key": HIDDEN,
    }


class Colour(enum.Enum):
    RED = "red"


class Opaque:
    pass


class Lying:
    def __str__(self):
        raise RuntimeError("no text")


@dataclass
class Nested:
    path: Path
    hub_token: str


def test_anything_becomes_plain_json():
    loop: dict = {}
    loop["self"] = loop
    got = redact(
        {
            "path": Path("a/b"),
            "enum": Colour.RED,
            "set": {"b", "a", "c"},
            "tuple": (1, (2,)),
            "bytes": b"abc",
            "nan": float("nan"),
            "inf": [float("-inf")],
            "scalar": np.float32(0.5),
            "count": np.int64(3),
            "array": np.zeros((2, 3)),
            "dataclass": Nested(Path("x"), "s3cret"),
            "opaque": Opaque(),
            "function": len,
            "class": Opaque,
            "lying": Lying(),
            "loop": loop,
            1: "int key",
            None: "none key",
            Colour.RED: "enum key",
        }
    )
    text = json.dumps(got, allow_nan=False)
    assert "0x" not in text and "s3cret" not in text  # an address would differ from run to run
    assert got["path"] == "a/b" and got["enum"] == "red" and got["set"] == ["a", "b", "c"] and got["tuple"] == [1, [2]]
    assert got["nan"] == "nan" and got["inf"] == ["-inf"] and got["scalar"] == 0.5 and got["count"] == 3
    assert got["array"].endswith("(2, 3) float64>") and got["dataclass"] == {"path": "x", "hub_token": HIDDEN}
    assert got["opaque"].endswith("test_identity_redact.Opaque>") and got["1"] == "int key" and got["red"] == "enum key"


def test_torch_values_are_text_and_are_not_read():
    torch = pytest.importorskip("torch")
    got = redact({"dtype": torch.bfloat16, "device": torch.device("cpu"), "tensor": torch.zeros(2, device="meta")})
    assert got == {"dtype": "torch.bfloat16", "device": "cpu", "tensor": "<Tensor (2,) torch.float32>"}


def test_the_given_mapping_is_not_changed():
    given = {"token": "abc", "list": [{"password": "x"}]}
    redact(given)
    assert given == {"token": "abc", "list": [{"password": "x"}]}
