"""One readable line for each thing that is wrong in a stack file."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing to change: where, and what. `where` is the path below `slurmstack:`, for example `login.size`."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ConfigError(ValueError):
    """Everything that is wrong with a configuration, all at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that the writer probably meant, or None if none is near."""
    candidates = sorted(valid)
    folded = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def unknown_name(name: str, valid: Iterable[str], *, what: str) -> str:
    """A message for a name that is not among the valid ones: the nearest one is proposed, all are listed."""
    names = sorted(valid)
    guess = nearest(name, names)
    hint = f"; did you mean {guess!r}?" if guess else ""
    listed = f" (valid: {', '.join(names)})" if names and (guess is None or len(names) <= 12) else ""
    return f"{name!r} is not {what}{listed}{hint}"


def problems_of(error: ValidationError, model: Any, prefix: str) -> list[Problem]:
    """Pydantic's errors as problems. `model` is the type that was validated, `prefix` its place in the stack file."""
    return [_problem(details, model, prefix) for details in error.errors(include_url=False)]


def _problem(details: Mapping[str, Any], model: Any, prefix: str) -> Problem:
    path = [str(part) for part in details["loc"] if part != "[key]"]
    return Problem(where=".".join([prefix, *path]), message=_message(details, model, path))


def _message(details: Mapping[str, Any], model: Any, path: list[str]) -> str:
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            message = unknown_name(path[-1], _fields_at(model, path[:-1]), what="a known key")
        case _ if given is None:
            message = "is empty: write what belongs there, or leave the key out"
        case "missing":
            message = "is required but not set"
        case "literal_error" | "enum":
            allowed = [part.strip("' ") for part in str(details["ctx"]["expected"]).replace(" or ", ",").split(",")]
            message = unknown_name(str(given), allowed, what="one of the allowed values")
        case "value_error":
            value = "" if isinstance(given, Mapping | BaseModel) else f"{given!r} "
            message = f"{value}{details['ctx']['error']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            message = f"{given!r} is not a map of keys to values"
        case "tuple_type" if isinstance(given, Mapping):
            message = f"{given!r} is not a list; write a list"
        case "tuple_type":
            message = f"{given!r} is not a list; write a list: [{given}]"
        case _:
            message = f"{given!r} is not allowed: {details['msg'][0].lower()}{details['msg'][1:]}"
    return message


def _fields_at(model: Any, path: list[str]) -> list[str]:
    """Names of the fields that are valid at a place inside a model."""
    current = _unwrap(model)
    for part in path:
        origin = get_origin(current)
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(part)
            current = _unwrap(field.annotation) if field is not None else None
        elif origin is not None and issubclass(origin, Mapping):
            current = _unwrap(get_args(current)[1])
        elif origin is not None and get_args(current):
            current = _unwrap(get_args(current)[0])
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(current.model_fields)
    return []


def _unwrap(annotation: Any) -> Any:
    """The model inside `Annotated[...]` and `... | None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            annotation = next(arg for arg in get_args(annotation) if arg is not type(None))
        else:
            return annotation
