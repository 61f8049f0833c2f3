"""From the text of a stack file, or Pulumi's own view of it, to a checked configuration."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError

from config.base import Section
from config.cluster import ClusterConfig
from config.errors import NULL_TEXT, ConfigError, Problem, nearest, problems_of, unknown_name, what_became
from config.nebius.platforms import with_resources
from config.rules import cross_check
from config.sections.cloud import CLOUDS

PROJECT = "slurmstack"
"""Prefix of our keys in a stack file: the name of the Pulumi project."""

_OTHERS = frozenset({"pulumi", "kubernetes", "nebius", "random"})
"""Pulumi itself and the providers of this program, whose keys may be named like sections of ours (`kubernetes:cluster`
chooses a cluster of the kubeconfig)."""

_NEAR = 0.7
"""Likeness from which a prefix is ours misspelt: `slurmstck` has 0.95, `localstack`, the nearest real one, 0.6."""


def load_config(sections: Mapping[str, Any]) -> ClusterConfig:
    """The configuration from its sections, by name without the project's prefix.

    Raises ConfigError with everything that is wrong: each section is checked by itself, then what holds between
    sections, as far as the sections could be read.
    """
    if refused := [problem for name, value in sections.items() for problem in _never_meant(value, name)]:
        raise ConfigError(refused)
    fields, valid = ClusterConfig.model_fields, dict[str, Any]()
    unknown = {name: value for name, value in sections.items() if name not in fields}
    # Misspelt sections count as written, under the names that were surely meant: nothing is said to be missing.
    meant = {guess: value for name, value in unknown.items() if (guess := nearest(name, fields))}
    written = with_resources({**meant, **sections})
    problems: list[Problem] = []
    slurm = written.get("slurm")
    default = fields["slurm"].get_default(call_default_factory=True).version
    context = {"version": str(slurm.get("version", default)) if isinstance(slurm, Mapping) else default}
    for name in sections:
        value, field = written[name], fields.get(name)
        if field is None:
            message = what_became(name) or unknown_name(name, fields, what="a known section")
            problems.append(Problem(f"{PROJECT}:{name}", message))
            continue
        # With the field's own constraints: `bool | None` alone would take "off" for no.
        annotation: Any = _cloud_model(value) if name == "cloud" else Annotated[field.annotation, field]
        try:
            valid[name] = _adapter(annotation).validate_python(value, context=context)
        except ValidationError as error:
            problems.extend(problems_of(error, annotation, name))
            if isinstance(value, Mapping) and get_origin(field.annotation) is dict:
                valid[name] = _readable_items(annotation, value)
    missing = [name for name, field in fields.items() if field.is_required() and name not in written]
    problems += [Problem(name, "is required but not set") for name in missing]
    problems += cross_check(valid, written)
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
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  it is a safe one
    except OSError as error:
        meant = path.with_name(f"Pulumi.{path.name}.yaml")
        message = f"cannot be read: {error.strerror}{f'; did you mean {meant}?' if meant.exists() else ''}"
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        message = f"is not valid YAML{line}: {error.problem}; check the indent of this line and of the one above"
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        message = f"is not valid YAML: {str(error).partition(chr(10))[0]}"  # as PyYAML has them
    raise ConfigError([Problem(str(path), message)])


def sections_of(document: Any, *, where: Path) -> dict[str, Any]:
    """Our sections of a stack file that was read, by name without the project's prefix.

    Raises ConfigError, also for a key that was surely meant to be one of ours.
    """
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise ConfigError([Problem(str(where), f"has no map 'config:' with keys such as '{PROJECT}:worker_nodes'")])
    check_keys(config, beside_config=document)
    prefix = f"{PROJECT}:"
    ours = {str(key): value for key, value in config.items() if str(key).startswith(prefix)}
    return {key[len(prefix) :]: plain(value) for key, value in ours.items()}


def check_keys(keys: Iterable[object], *, beside_config: Iterable[object] = ()) -> None:
    """Raise ConfigError if a key was surely meant for us and would be ignored, as if its section were not there.

    `keys` are those below `config:`, `beside_config` those at the margin of the stack file.
    """
    sections = ClusterConfig.model_fields
    problems = [Problem(key, f"would be overlooked: {_instead(key)}") for key in map(str, keys) if _is_meant(key)]
    for key in map(str, beside_config):
        if key in sections or _is_near(key.partition(":")[0]):
            message = f"stands beside `config:`, and would be overlooked; indent it below that: {_instead(key)}"
            problems.append(Problem(key, message))
    if problems:
        raise ConfigError(problems)


def _is_meant(key: str) -> bool:
    """Whether a key that is not ours was meant to be: without a prefix, with ours misspelt, or with any other."""
    prefix, colon, rest = key.partition(":")
    if colon and (prefix == PROJECT or prefix in _OTHERS):
        return False
    return not colon or _is_near(prefix) or rest in ClusterConfig.model_fields


def _is_near(prefix: str) -> bool:
    folded = prefix.strip().lower()
    return folded.startswith("slurm") or difflib.SequenceMatcher(None, folded, PROJECT).ratio() >= _NEAR


def _instead(key: str) -> str:
    """What to write for a key, as far as it can be guessed."""
    name = (key.partition(":")[2] or key).strip().removeprefix(PROJECT).lstrip("./_- ")
    guess = name if name in ClusterConfig.model_fields else nearest(name, ClusterConfig.model_fields)
    if guess is not None:
        return f"write `{PROJECT}:{guess}:`"
    return f"write `{PROJECT}:` and the name of a section, or the provider's name before it if it is for a provider"


def plain(value: Any) -> Any:
    """A section as Pulumi hands it to the program: `pulumi config set` writes text, which is read as JSON if it is."""
    if not isinstance(value, str):
        return value

    try:
        return json.loads(value)
    except ValueError:
        return value


def encrypted_problem(name: str) -> Problem:
    """What is wrong with a key that is encrypted, in the stack file or where else Pulumi takes it from."""
    return Problem(
        name,
        "is encrypted (`secure:`), but would lie in ConfigMaps and in the state in the clear: nothing in a "
        "stack file is kept secret. Put a secret into a Kubernetes Secret and name that; write all else in plain text",
    )


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
                continue
            name = (key.tag, key.value)
            if name in lines:
                message = f"the key {key.value!r} stands in line {lines[name]} and again in line {line}"
                raise yaml.YAMLError(message)
            lines[name] = line
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ARG002
        line = node.start_mark.line + 1
        if node.tag == "tag:yaml.org,2002:int" and re.fullmatch(r"[-+]?0[0-7_]+", str(node.value)):
            message = f"{node.value} in line {line}, which Pulumi reads in base 8: write it without the leading 0"
            raise yaml.YAMLError(message)
        return super().construct_object(node, deep=True)  # which refuses an alias inside of what it names


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?(0b[01_]+|0|0o?[0-7_]+|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), list(_first))


def _readable_items(annotation: Any, items: Mapping[Any, Any]) -> dict[str, Any]:
    """The items of a section of named things that are right by themselves, so that they are checked further."""
    readable: dict[str, Any] = {}
    for key, item in items.items():
        with suppress(ValidationError):
            readable |= _adapter(annotation).validate_python({key: item})
    return readable


def _never_meant(value: Any, where: str, *, free: bool = False) -> Iterator[Problem]:
    """What Pulumi would decrypt, and the text "null" of a key, which would be taken for a name unless it is `free`."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get("secure"), str):
        yield encrypted_problem(where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _never_meant(item, f"{where}.{key}", free=free or key == "settings")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _never_meant(item, f"{where}.{index}", free=True)
    elif value == "null" and not free:
        yield Problem(where, NULL_TEXT)


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
