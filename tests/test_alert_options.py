"""`obs: {alerts: {...}}`: what is accepted, what is refused in one line, and that no address is shown anywhere."""

import json

import pytest

from llamafactory_obs.alerts.options import AlertOptions, parse_alerts
from llamafactory_obs.errors import ConfigError
from llamafactory_obs.identity.redact import hide, redact
from llamafactory_obs.settings import Settings

HOOKS = {
    "https://hooks.slack.com/services/T0AAAAAA1/B0BBBBBB2/cccccccccccccccccccccccc": "slack",
    "https://open.feishu.cn/open-apis/bot/v2/hook/0a1b2c3d-1111-2222-3333-444455556666": "feishu",
    "https://open.larksuite.com/open-apis/bot/v2/hook/0a1b2c3d-1111-2222-3333-444455556666": "feishu",
    "https://oapi.dingtalk.com/robot/send?access_token=0123456789abcdef0123456789abcdef": "dingtalk",
    "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=693a91f6-7xxx-4bc4-97a0-0ec2sifa5aaa": "wecom",
    "https://alerts.example.com/training/5f3a9c2b7d8e": "json",
    "http://127.0.0.1:8000": "json",
}


def test_without_the_block_everything_is_quiet_and_nobody_is_called():
    options = Settings.parse(None).alerts
    assert options == Settings.parse({"mask_range": [0.2, 0.4]}).alerts == parse_alerts({}) == AlertOptions()
    assert options.webhooks == () and options.stop_on == () and not options.stops("a", "nan", "error")


@pytest.mark.parametrize("url", HOOKS)
def test_the_kind_is_known_by_the_address(url):
    for given in (url, {"url": url}, [url], {"url": url, "kind": "auto"}):
        [webhook] = parse_alerts({"webhook": given}).webhooks
        assert webhook.kind == HOOKS[url] and webhook.min_level == "warn"
    assert parse_alerts({"webhook": {"url": url, "kind": "slack"}}).webhooks[0].kind == "slack"


@pytest.mark.parametrize("url", HOOKS)
def test_neither_the_address_nor_a_token_in_it_is_shown(url):
    options = parse_alerts({"webhook": {"url": url}})
    token = url.rpartition("=")[2].rpartition("/")[2]
    assert url not in repr(options) and (token not in repr(options) or len(token) < 15)
    text = f"ConnectError for {url} (token {token})"
    assert url not in hide(text, options.hidden)
    if token != "127.0.0.1:8000":
        assert token not in hide(text, options.hidden)
    given = {"obs": {"alerts": {"webhook": {"url": url, "secret": "SECabcdef"}}}}
    for shown in (given, {"obs": {"alerts": {"webhook": [{"url": url}]}}}, {"obs": {"alerts": {"webhook": url}}}):
        assert url not in json.dumps(redact(shown)) and "SECabcdef" not in json.dumps(redact(shown))


def test_variables_are_expanded_and_hidden(monkeypatch):
    monkeypatch.setenv("HOOK", "https://alerts.example.com/x/0123456789ab")
    monkeypatch.setenv("HOOK_SECRET", "SEC987654")
    block = {
        "webhook": {"url": "${HOOK}", "secret": "${HOOK_SECRET}", "title": "${NAME:-night run}", "kind": "dingtalk"}
    }
    options = parse_alerts(block)
    [webhook] = options.webhooks
    assert (webhook.url, webhook.secret) == ("https://alerts.example.com/x/0123456789ab", "SEC987654")
    assert webhook.title == "night run" and {webhook.url, "SEC987654", "0123456789ab"} <= options.hidden
    monkeypatch.delenv("HOOK")
    with pytest.raises(ConfigError, match="environment variable HOOK is not set"):
        parse_alerts(block)


def test_several_webhooks_each_with_its_level():
    urls = list(HOOKS)
    options = parse_alerts({"webhook": [urls[0], {"url": urls[1], "min_level": "error", "secret": "s3cret"}]})
    assert [(one.kind, one.min_level) for one in options.webhooks] == [("slack", "warn"), ("feishu", "error")]
    assert options.webhooks[0].key != options.webhooks[1].key and urls[0][-24:] not in options.webhooks[0].key


SLACK = next(iter(HOOKS))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("loud", "must be a mapping"),
        ({"cooldown": 3}, "unknown key 'cooldown'; did you mean"),
        ({"cooldown_steps": -1}, "cooldown_steps must be a whole number of 0 or more, got -1"),
        ({"cooldown_steps": 2.5}, "cooldown_steps must be a whole number"),
        ({"cooldown_steps": True}, "cooldown_steps must be a whole number"),
        ({"cooldown_s": float("nan")}, "cooldown_s must be a number"),
        ({"cooldown_s": "60"}, "cooldown_s must be a number of 0 or more, got '60'"),
        ({"min_level": "loud"}, "min_level must be info, warn, error, got 'loud'"),
        ({"min_level": ["warn"]}, "min_level must be info, warn, error"),
        ({"stop_on": {"nan": True}}, "stop_on must be a list of names"),
        ({"stop_on": ["spke"]}, "no alert is called 'spke'; did you mean 'spike'"),
        ({"stop_on": [3]}, "stop_on must be a list of names"),
        ({"webhook": 7}, "webhook must be a mapping"),
        ({"webhook": {}}, "webhook: url must be an address"),
        ({"webhook": {"url": "hooks.slack.com/services/T0/B0/secret"}}, "webhook: url must be an address"),
        ({"webhook": {"url": "ftp://h/x"}}, "webhook: url must be an address"),
        ({"webhook": {"url": "https://[::1/x"}}, "webhook: url must be an address"),
        ({"webhook": {"url": "https://h:99999/x"}}, "webhook: url must be an address"),
        ({"webhook": {"url": "https://h/a b"}}, "webhook: url must be an address"),
        ({"webhook": [SLACK, {"url": SLACK, "kind": "teams"}]}, "webhook[1]: kind must be auto, json, slack"),
        ({"webhook": {"url": SLACK, "kind": ["slack"]}}, "webhook: kind must be auto"),
        ({"webhook": {"url": SLACK, "secret": "abc"}}, "slack checks no signature; remove `secret`"),
        ({"webhook": {"url": SLACK, "min_level": "all"}}, "webhook: min_level must be"),
        ({"webhook": {"url": SLACK, "token": "abc"}}, "webhook: unknown key 'token'"),
        ({"webhook": {"url": SLACK, "title": 7}}, "webhook: title must be text"),
    ],
)
def test_a_fault_is_one_line_without_the_address(block, words):
    with pytest.raises(ConfigError) as caught:
        Settings.parse({"alerts": block})
    line = str(caught.value)
    assert words in line and line.startswith("obs: alerts") and "\n" not in line
    assert "cccccccc" not in line and "services/T0" not in line


def test_stop_on():
    options = parse_alerts({"stop_on": ["stalled", "mine/odd"]})
    assert options.stops("grad_norm_spike", "stalled", "error") and options.stops("mine", "odd", "warn")
    assert not options.stops("other", "odd", "error") and not options.stops("grad_norm_spike", "spike", "error")
    assert not options.stops("mine", "odd", "info")
    assert parse_alerts({"stop_on": "error"}).stops("x", "anything", "error")
    assert not parse_alerts({"stop_on": "error"}).stops("x", "anything", "warn")
