"""YAML as people write it in configuration: mappings, lists, text, numbers, true, false, null.

The rest of YAML is what makes it dangerous to read, and nobody misses it here: aliases (a few
lines that expand to gigabytes), tags (objects of any kind) and nesting without end (the C parser
dies of it). All three are refused. Text that only looks like a date or an octal number stays
the text that it is.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_MAX_DEPTH = 40
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {
    word: meaning
    for lower, meaning in (("true", True), ("yes", True), ("on", True),
                           ("false", False), ("no", False), ("off", False))
    for word in (lower, lower.capitalize(), lower.upper())
}  # fmt: skip
_STRING_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_number = msgspec.json.Decoder(int | float)


class NotPlainYaml(ValueError):
    """The text cannot be read; the message says where and never quotes it."""


def read_plain_yaml(data: bytes) -> Any:
    """The one document in ``data``; ``None`` if there is none. Raises ``NotPlainYaml``."""
    try:
        return _document(yaml.parse(data, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise NotPlainYaml(f"{where}{error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError):
        raise NotPlainYaml("it contains bytes that are not text") from None


def _document(events: Iterator[Any]) -> Any:
    root: Any = None
    documents = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refused(event, "a second document begins here, and only one is read")
        elif isinstance(event, yaml.NodeEvent):
            root = _node(event, events, depth=0)
    return root


def _node(event: Any, events: Iterator[Any], *, depth: int) -> Any:
    if isinstance(event, yaml.AliasEvent):
        raise _refused(event, "aliases (*name) are not read; write the value out")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if event.tag is not None:
        raise _refused(event, "tags (!name) are not read; remove it")
    if depth == _MAX_DEPTH:
        raise _refused(event, f"nested more than {_MAX_DEPTH} levels deep")
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(events, depth=depth + 1)
    return _mapping(events, depth=depth + 1)


def _sequence(events: Iterator[Any], *, depth: int) -> list[Any]:
    items = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_node(event, events, depth=depth))
    return items


def _mapping(events: Iterator[Any], *, depth: int) -> dict[str, Any]:
    items: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent):
            raise _refused(event, "a key must be text")
        items[event.value] = _node(next(events), events, depth=depth)
    return items


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is not None and event.tag not in _STRING_TAGS:
        raise _refused(event, "tags (!name) are not read; remove it")
    if "\0" in text:
        raise _refused(event, "a NUL character, which no path, variable or header can carry")
    plain = event.implicit[0]
    if not plain:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    try:
        return _number.decode(text)
    except msgspec.MsgspecError:
        return text


def _refused(event: Any, why: str) -> NotPlainYaml:
    return NotPlainYaml(f"line {event.start_mark.line + 1}: {why}")
