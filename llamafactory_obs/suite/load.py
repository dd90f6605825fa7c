"""Reads a suite from YAML. The format is described in docs/suite.md; a mistake is named with its line."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

from ..errors import ConfigError
from ..plugin.names import did_you_mean
from .located import Located, read_yaml
from .model import AfterError, Expect, ExpectedCall, Probe, Reply, Suite, Tool

#: tokens of one answer at most, where the suite does not say
MAX_NEW_TOKENS = 256
#: answers of the model in one conversation at most, where the suite does not say
MAX_TURNS = 4

_SHARED = ("system", "tools", "tool_replies", "max_turns")
_TOP = ("name", *_SHARED, "max_new_tokens", "probes")
_PROBE = ("name", "about", *_SHARED, "messages", "expect")
_EXPECT = ("calls", "answer", "contains", "after_error", "invented", "scorer")
_PLACE = re.compile(r"\{(\w+)\}")


def load_suite(file: str | Path) -> Suite:
    """Read and check a suite.

    Raises:
        ConfigError: what is wrong, with the file and the line.
    """
    file = Path(file)
    top = read_yaml(file)
    entries = top.mapping(_TOP, required=("probes",))
    name = entries["name"].text() if "name" in entries else file.stem
    longest = entries["max_new_tokens"].whole(1, 32768) if "max_new_tokens" in entries else MAX_NEW_TOKENS
    if not entries["probes"].items():
        raise entries["probes"].fail("a suite needs at least one probe")
    probes: list[Probe] = []
    for entry in entries["probes"].items():
        probe = _probe(entry, {key: entries[key] for key in _SHARED if key in entries})
        if any(other.name == probe.name for other in probes):
            raise entry.fail(f"there are two probes named {probe.name!r}")
        probes.append(probe)
    return Suite(name, file, tuple(probes), longest, _hash(probes, longest))


def _hash(probes: list[Probe], longest: int) -> str:
    """SHA-256 of what can change an output or a verdict."""
    content = []
    for probe in probes:
        fields = dataclasses.asdict(probe)
        content.append({key: value for key, value in fields.items() if key not in ("about", "line")})
    text = json.dumps([content, longest], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _probe(entry: Located, shared: dict[str, Located]) -> Probe:
    own = entry.mapping(_PROBE, required=("name", "messages"))
    parts = {**shared, **{key: own[key] for key in _SHARED if key in own}}
    tools = _tools(parts["tools"]) if "tools" in parts else ()
    by_name = {tool.name: tool for tool in tools}
    return Probe(
        name=own["name"].text(),
        about=own["about"].text() if "about" in own else "",
        messages=_messages(own["messages"], by_name),
        system=parts["system"].text(empty=True) if "system" in parts else "",
        tools=tools,
        tool_replies=_replies(parts["tool_replies"], by_name) if "tool_replies" in parts else (),
        max_turns=parts["max_turns"].whole(1, 64) if "max_turns" in parts else MAX_TURNS,
        expect=_expect(own["expect"], by_name) if "expect" in own else Expect(),
        line=entry.line,
    )


def _tools(block: Located) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for entry in block.items():
        fields = entry.mapping()
        if set(fields) == {"type", "function"}:  # the form of OpenAI's API
            entry = fields["function"]
        fields = entry.mapping(("name", "description", "parameters"), required=("name", "parameters"))
        name = fields["name"].text()
        if any(tool.name == name for tool in tools):
            raise entry.fail(f"there are two tools named {name!r}")
        _check_schema(fields["parameters"])
        description = fields["description"].text(empty=True) if "description" in fields else ""
        tools.append(Tool(name, description, fields["parameters"].value))
    return tuple(tools)


def _check_schema(block: Located) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    block.mapping()
    if block.value.get("type") != "object":
        raise block.fail("must be a JSON Schema with `type: object` and `properties`")
    try:
        Draft202012Validator.check_schema(block.value)
        each = dict.fromkeys(block.value.get("properties", {}))  # so that every part is looked at
        list(Draft202012Validator(block.value).iter_errors(each))
    except SchemaError as error:
        raise block.at(error.absolute_path).fail(f"no valid JSON Schema: {error.message}") from None
    except Exception as error:  # a $ref that leads nowhere; the library has its own errors for that
        raise block.fail(f"the schema cannot be used: {' '.join(str(error).split())[:200]}") from None


def _messages(block: Located, tools: dict[str, Tool]) -> tuple[dict, ...]:
    """User and assistant take turns; after an assistant's `tool_calls` come the tool's answers."""
    messages: list[dict] = []
    for entry in block.items():
        fields = entry.mapping(("role", "content", "tool_calls"), required=("role",))
        role = fields["role"].value
        after = messages[-1]["role"] if messages else None
        called = bool(messages and messages[-1].get("tool_calls"))
        wanted = {None: ("user",), "user": ("assistant",), "tool": ("tool", "assistant")}.get(
            after, ("tool",) if called else ("user",)
        )
        if role not in ("user", "assistant", "tool"):
            raise fields["role"].fail(f"must be user, assistant or tool, got {role!r} (the system prompt is `system:`)")
        if role not in wanted:
            before = "the first message" if after is None else f"after {after}{' with tool_calls' if called else ''}"
            raise entry.fail(
                f"{role} cannot stand here: {before} {'is' if after is None else 'comes'} {' or '.join(wanted)}"
            )
        message: dict = {"role": role}
        if "tool_calls" in fields:
            if role != "assistant":
                raise fields["tool_calls"].fail("only an assistant's message has tool_calls")
            message["tool_calls"] = [_made(call, tools) for call in fields["tool_calls"].items()]
        if "content" in fields or "tool_calls" not in fields:
            if "content" not in fields:
                raise entry.fail("'content' is missing")
            value = fields["content"].value
            as_json = role == "tool" and isinstance(value, (dict, list))
            message["content"] = json.dumps(value, ensure_ascii=False) if as_json else fields["content"].text()
        messages.append(message)
    if not messages:
        raise block.fail("a probe needs at least one message")
    if messages[-1]["role"] == "assistant":
        raise block.fail("the last message must be from the user or a tool: the model speaks next")
    return tuple(messages)


def _made(entry: Located, tools: dict[str, Tool]) -> dict:
    fields = entry.mapping(("name", "arguments"), required=("name", "arguments"))
    _known(fields["name"], tools)
    fields["arguments"].mapping()
    return {"name": fields["name"].value, "arguments": fields["arguments"].value}


def _known(name: Located, tools: dict[str, Tool]) -> Tool:
    if name.text() not in tools:
        known = f"known: {', '.join(tools)}" if tools else "`tools:` is empty"
        raise name.fail(f"no tool {name.value!r}{did_you_mean(name.value, tools)} ({known})")
    return tools[name.value]


def _replies(block: Located, tools: dict[str, Tool]) -> tuple[Reply, ...]:
    replies = []
    for entry in block.items():
        fields = entry.mapping(("tool", "when", "reply"), required=("tool", "reply"))
        tool = _known(fields["tool"], tools)
        when = _alternatives(fields["when"], [tool]) if "when" in fields else {}
        properties = tool.parameters.get("properties", {})
        for place in _PLACE.findall(json.dumps(fields["reply"].value, ensure_ascii=False)):
            if place not in properties:
                hint = did_you_mean(place, properties)
                raise fields["reply"].fail(f"{{{place}}} is no argument of {tool.name}{hint}")
        replies.append(Reply(tool.name, when, fields["reply"].value))
    return tuple(replies)


def _alternatives(block: Located, tools: list[Tool]) -> dict[str, list]:
    """Argument name -> the values that are right; one value may stand without its list."""
    properties = {name for tool in tools for name in tool.parameters.get("properties", {})}
    found = {}
    for name, value in block.mapping().items():
        if name not in properties:
            known = ", ".join(sorted(properties)) or "none"
            raise value.fail(f"no tool has an argument {name!r}{did_you_mean(name, properties)} (known: {known})")
        found[name] = value.value if isinstance(value.value, list) else [value.value]
    return found


def _expect(block: Located, tools: dict[str, Tool]) -> Expect:
    fields = block.mapping(_EXPECT)
    answer = fields["answer"].value if "answer" in fields else None
    if answer not in (None, "non_empty"):
        raise fields["answer"].fail(f"must be non_empty, got {answer!r}")
    invented = fields["invented"].text() if "invented" in fields else None
    if invented is not None:
        try:
            re.compile(invented)
        except re.error as error:
            raise fields["invented"].fail(f"no valid regular expression: {error}") from None
    scorer = fields["scorer"].text() if "scorer" in fields else None
    if scorer is not None and not re.fullmatch(r"\w+(\.\w+)+", scorer):
        raise fields["scorer"].fail(f"must be a dotted path such as my_package.scoring.judge, got {scorer!r}")
    contains: tuple[str, ...] = ()
    if "contains" in fields:
        several = isinstance(fields["contains"].value, list)
        contains = tuple(t.text() for t in (fields["contains"].items() if several else [fields["contains"]]))
    return Expect(
        calls=tuple(_expected(call, tools) for call in fields["calls"].items()) if "calls" in fields else None,
        answer=answer,
        contains=contains,
        after_error=_after_error(fields["after_error"], tools) if "after_error" in fields else None,
        invented=invented,
        scorer=scorer,
    )


def _expected(entry: Located, tools: dict[str, Tool]) -> ExpectedCall:
    fields = entry.mapping(("name", "arguments", "one_of", "optional"), required=("name",))
    tool = _known(fields["name"], tools)
    arguments = {}
    if "arguments" in fields:
        fields["arguments"].mapping()
        arguments = {name: [value] for name, value in fields["arguments"].value.items()}
    if "one_of" in fields:
        for name, value in fields["one_of"].mapping().items():
            if not isinstance(value.value, list) or not value.value:
                raise value.fail("must be a list of the values that are right")
            if name in arguments:
                raise value.fail(f"{name!r} stands under `arguments` already")
            arguments[name] = value.value
    optional = tuple(name.text() for name in fields["optional"].items()) if "optional" in fields else ()
    _legal(entry, tool, arguments, optional)
    return ExpectedCall(tool.name, arguments, optional)


def _legal(entry: Located, tool: Tool, arguments: dict[str, list], optional: tuple[str, ...]) -> None:
    """What is expected must itself fit the tool's schema, else no model could ever be right."""
    from jsonschema import Draft202012Validator

    schema = tool.parameters
    known = schema.get("properties", {})
    for name in [*arguments, *optional]:
        if name not in known and schema.get("additionalProperties", True) is not True:
            raise entry.fail(f"{tool.name} has no argument {name!r}{did_you_mean(name, known)}")
    given = {name: values[0] for name, values in arguments.items()}
    missing = [name for name in schema.get("required", []) if name not in given and name not in optional]
    if missing:
        raise entry.fail(f"{tool.name} requires {missing[0]!r}: name its value, or list it under `optional`")
    for name, values in arguments.items():
        for value in values:
            problem = next(Draft202012Validator(schema).iter_errors({**given, name: value}), None)
            if problem is not None and problem.validator != "required":
                raise entry.at(("arguments", name)).fail(f"{tool.name} does not allow this: {problem.message}")


def _after_error(block: Located, tools: dict[str, Tool]) -> AfterError:
    fields = block.mapping(("retry", "or_ask", "no_repeat"))
    every = list(tools.values())
    rule = AfterError(
        retry=_alternatives(fields["retry"], every) if "retry" in fields else None,
        or_ask=fields["or_ask"].truth() if "or_ask" in fields else False,
        no_repeat=_alternatives(fields["no_repeat"], every) if "no_repeat" in fields else None,
    )
    if rule.retry is None and not rule.or_ask:
        raise block.fail("nothing would be right: give `retry`, `or_ask: true` or both")
    return rule


def shipped_suite() -> Path:
    """The three fixed probes."""
    from ..init import data_folder

    file = data_folder("probes") / "order_query.yaml"
    if not file.is_file():
        raise ConfigError(f"{file} is missing from the installation; reinstall llamafactory-obs, or name a suite")
    return file
