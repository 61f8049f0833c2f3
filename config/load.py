"""From the text of a stack file, or Pulumi's own view of it, to a checked configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from config import keys
from config.base import Section
from config.cluster import ClusterConfig
from config.errors import ConfigError, Problem, fields_of, nearest, problems_of, unknown_name
from config.gone import what_became
from config.nebius.presets import with_resources
from config.rules.together import cross_check
from config.sections.cloud import CLOUDS

PROJECT = keys.PROJECT
"""Prefix of our keys in a stack file: the name of the Pulumi project."""


def load_config(sections: Mapping[str, Any]) -> ClusterConfig:
    """The configuration from its sections, by name without the project's prefix.

    Raises ConfigError with everything that is wrong: each section is checked by itself, then what holds between
    sections, as far as the sections could be read.
    """
    problems: list[Problem] = []
    valid: dict[str, Any] = {}
    encrypted = [place for name, value in sections.items() for place in _encrypted(value, name)]
    if encrypted:
        raise ConfigError(encrypted_problem(place) for place in encrypted)
    nameless = list(_nameless(sections))
    if nameless:
        raise ConfigError(nameless)
    unknown = {name: value for name, value in sections.items() if name not in ClusterConfig.model_fields}
    # Misspelt sections count as written, under the names that were surely meant: nothing is said to be missing.
    meant = {guess: value for name, value in unknown.items() if (guess := nearest(name, ClusterConfig.model_fields))}
    written = with_resources({**meant, **sections})
    for name in sections:
        value = written[name]
        field = ClusterConfig.model_fields.get(name)
        if field is None:
            message = what_became(name) or unknown_name(name, ClusterConfig.model_fields, what="a known section")
            problems.append(Problem(f"{PROJECT}:{name}", message))
            continue
        # With the field's own constraints: `bool | None` alone would take "off" for no.
        annotation: Any = _cloud_model(value) if name == "cloud" else Annotated[field.annotation, field]
        try:
            valid[name] = _adapter(annotation).validate_python(_lists_to_tuples(value))
        except ValidationError as error:
            problems.extend(problems_of(error, annotation, name))
            if isinstance(value, Mapping) and get_origin(field.annotation) is dict:
                valid[name] = _readable_items(annotation, value)
    problems.extend(
        Problem(name, "is required but not set")
        for name, field in ClusterConfig.model_fields.items()
        if field.is_required() and name not in written
    )
    problems.extend(cross_check(valid, written))
    if problems:
        raise ConfigError(problems)
    return ClusterConfig.model_validate(valid)


def load_stack_file(path: Path) -> ClusterConfig:
    """The configuration in a stack file such as `Pulumi.dev.yaml`. Raises ConfigError."""
    return load_config(read_sections(path))


def read_sections(path: Path) -> dict[str, Any]:
    """Our sections of a stack file, unchecked. Raises ConfigError if there is no such file or it is not YAML."""
    return sections_of(read_document(path), where=path)


def read_document(path: Path) -> Any:
    """The whole of a stack file, unchecked. Raises ConfigError if there is no such file or it is not YAML."""
    where = str(path)
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  it is a safe one
        endless = _contains_itself(document, set(), set())
    except FileNotFoundError:
        meant = path.with_name(f"Pulumi.{path.name}.yaml")
        instead = f"; did you mean {meant}?" if meant.exists() else ""
        raise ConfigError([Problem(where, f"there is no such file{instead}")]) from None
    except OSError as error:
        raise ConfigError([Problem(where, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(where, "is not text in UTF-8")]) from None
    except _RefusedError as error:
        raise ConfigError([Problem(where, str(error))]) from None
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        message = f"is not valid YAML{line}: {error.problem}; check the indent of this line and of the one above"
        raise ConfigError([Problem(where, message)]) from None
    except yaml.YAMLError as error:
        message = str(error).partition("\n")[0]
        raise ConfigError([Problem(where, f"is not valid YAML: {message}")]) from None
    except RecursionError:
        raise ConfigError([Problem(where, "is nested too deeply")]) from None
    if endless:
        raise ConfigError([Problem(where, "an alias (*) stands inside of what it names, which would never end")])
    return document


def _contains_itself(value: Any, above: set[int], seen: set[int]) -> bool:
    """Whether following a value's items leads back to it. `above`: what it lies in; `seen`: what was followed."""
    if not isinstance(value, dict | list) or id(value) in above:
        return isinstance(value, dict | list)
    if id(value) in seen:
        return False
    seen.add(id(value))
    above.add(id(value))
    items = value.values() if isinstance(value, dict) else value
    found = any(_contains_itself(item, above, seen) for item in items)
    above.discard(id(value))
    return found


def sections_of(document: Any, *, where: Path) -> dict[str, Any]:
    """Our sections of a stack file that was read, by name without the project's prefix.

    Raises ConfigError, also for a key that was surely meant to be one of ours.
    """
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise ConfigError([Problem(str(where), f"has no map 'config:' with keys such as '{PROJECT}:worker_nodes'")])
    keys.check_keys(config, beside_config=document)
    prefix = f"{PROJECT}:"
    ours = {str(key): value for key, value in config.items() if str(key).startswith(prefix)}
    return {key[len(prefix) :]: plain(value, key) for key, value in ours.items()}


def plain(value: Any, where: str) -> Any:
    """A section as Pulumi hands it to the program: `pulumi config set` writes text, which is read as JSON if it is.

    Raises ConfigError about the key `where`.
    """
    if not isinstance(value, str):
        return value

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError([Problem(where, f"has the key {twice!r} twice in its JSON text: leave one of them")])
        return made

    try:
        read = json.loads(value, object_pairs_hook=once)
        _contains_itself(read, set(), set())  # goes as deep as all that looks at it later
        return read
    except ConfigError:
        raise
    except ValueError:
        return value
    except RecursionError:
        raise ConfigError([Problem(where, "is nested too deeply")]) from None


def encrypted_problem(name: str) -> Problem:
    """What is wrong with a key that is encrypted, in the stack file or where else Pulumi takes it from."""
    return Problem(
        name,
        "is encrypted (`secure:`), but would lie in ConfigMaps and in the state in the clear: nothing in a "
        "stack file is kept secret. Put a secret into a Kubernetes Secret and name that; write all else in plain text",
    )


_STANDARD = "tag:yaml.org,2002:"
"""What YAML puts before the names of its own kinds of values."""

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "timestamp": "a date of the calendar"}
"""Kinds of values that text may fail to be."""

_KNOWN = frozenset(f"{_STANDARD}{kind}" for kind in (*_KINDS, "null", "str", "seq", "map"))
_NO_KEYS = frozenset(f"{_STANDARD}{kind}" for kind in ("bool", "float", "timestamp"))
_NULL, _INT = f"{_STANDARD}null", f"{_STANDARD}int"

MOST_VALUES = 1_000_000
"""Values in a stack file at most, with those that aliases stand for: enough for tens of thousands of users, and too few
for some lines of aliases of aliases to keep a pipeline busy for hours."""

_LONGEST_NUMBER = 40


class _RefusedError(yaml.YAMLError):
    """What YAML allows and a stack file does not."""


class _Loader(yaml.SafeLoader):
    """Reads `off`, `yes` and `1:30:00` as text, as Pulumi does (YAML 1.2), not as no, yes and 5400 (YAML 1.1).

    A key that stands twice in a map is an error: the last one would win, and nobody be told.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                message = f"has a list or a map in line {line} where a key belongs: write text with [ or {{ in quotes"
                raise _RefusedError(message)
            if key.tag == _NULL:
                raise _RefusedError(f"has an empty key in line {line}: write a name before the colon")
            if key.tag in _NO_KEYS:
                raise _RefusedError(f"has the key {key.value} in line {line}, which is not text: write it in quotes")
            name = (key.tag, key.value)
            if name in lines:
                message = f"the key {key.value!r} stands in line {lines[name]} and again in line {line}"
                raise yaml.YAMLError(message)
            lines[name] = line
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        # Before anything is made of it: merging (<<) writes aliases out.
        if _expanded(node, {}) > MOST_VALUES:
            raise _RefusedError(f"has more than {MOST_VALUES:,} values, counting what aliases (*) stand for")
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        line = node.start_mark.line + 1
        if node.tag not in _KNOWN:
            tag = node.tag.replace(_STANDARD, "!!")
            raise _RefusedError(f"has the tag {tag} in line {line}, which means nothing here: leave it out")
        if node.tag == _INT:
            _check_number(str(node.value), line)
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, AttributeError, OverflowError):  # whatever PyYAML runs into with `!!bool 3`
            kind = _KINDS.get(node.tag.removeprefix(_STANDARD))
            if kind is None or not isinstance(node, yaml.ScalarNode):
                raise
            message = f"has {node.value} in line {line}, which is not {kind}: write it in quotes if it is text"
            raise _RefusedError(message) from None


def _check_number(text: str, line: int) -> None:
    """Refuse a whole number that YAML reads as another one than its writer, and one that nothing counts."""
    if len(text) > _LONGEST_NUMBER:
        raise _RefusedError(f"has a number of {len(text)} characters in line {line}; {_LONGEST_NUMBER} at most")
    if re.fullmatch(r"[-+]?0[0-7_]+", text):
        message = f"has {text} in line {line}, which YAML reads as {int(text.replace('_', ''), 8)}: write it without "
        raise _RefusedError(f"{message}the leading 0, or in quotes if it is text")


def _expanded(node: yaml.Node, counted: dict[int, int]) -> int:
    """Values in a part of the file with every alias written out; each part is counted once, and nothing written."""
    if id(node) not in counted:
        counted[id(node)] = 1  # also while it is counted, for an alias inside of what it names
        if isinstance(node, yaml.SequenceNode):
            counted[id(node)] += sum(_expanded(item, counted) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            counted[id(node)] += sum(_expanded(part, counted) for pair in node.value for part in pair)
    return counted[id(node)]


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?(0b[01_]+|0|0o?[0-7_]+|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
):
    _Loader.add_implicit_resolver(f"{_STANDARD}{_tag}", re.compile(f"^({_pattern})$"), list(_first))


def _nameless(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Sections of named things that have the keys of one such thing where its name belongs.

    A name may be that of a key (a partition `qos`), so that there must be a key whose value is no map.
    """
    for name, value in sections.items():
        field = ClusterConfig.model_fields.get(name)
        if field is None or get_origin(field.annotation) is not dict or not isinstance(value, Mapping):
            continue
        known = fields_of(get_args(field.annotation)[1])
        keys = [key for key in value if key in known]
        if any(value[key] is not None and not isinstance(value[key], Mapping) for key in keys):
            message = f"has {' and '.join(map(repr, keys))} directly below it, where a name belongs: write a name of "
            message += f"your own and these below it, `NAME: {{{keys[0]}: ...}}`"
            yield Problem(name, message)


def _readable_items(annotation: Any, items: Mapping[Any, Any]) -> dict[str, Any]:
    """The items of a section of named things that are right by themselves, so that they are checked further."""
    readable: dict[str, Any] = {}
    for key, item in items.items():
        with suppress(ValidationError):
            readable |= _adapter(annotation).validate_python({key: _lists_to_tuples(item)})
    return readable


def _encrypted(value: Any, where: str) -> Iterator[str]:
    """Where Pulumi would decrypt: `{secure: text}` and nothing else in a map."""
    if isinstance(value, Mapping):
        if len(value) == 1 and isinstance(value.get("secure"), str):
            yield where
        else:
            for key, item in value.items():
                yield from _encrypted(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _encrypted(item, f"{where}.{index}")


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """What checks a section. To make it takes four times as long as to check with it."""
    return TypeAdapter(annotation)


def _cloud_model(value: Any) -> Any:
    """The one model of the clouds that `kind` names, so that messages are about this one."""
    kind = value.get("kind", "existing") if isinstance(value, Mapping) else "existing"
    return CLOUDS.get(kind, _AnyCloud) if isinstance(kind, str) else _AnyCloud


class _AnyCloud(Section):
    """Only good for saying which kinds there are."""

    kind: Literal["existing", "nebius"]


def _lists_to_tuples(value: Any) -> Any:
    """YAML and JSON have lists where the frozen models have tuples; nothing else is converted."""
    if isinstance(value, dict):
        return {key: _lists_to_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_lists_to_tuples(item) for item in value)
    return value
