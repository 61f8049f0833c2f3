"""One readable line for each thing that is wrong in a stack file."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


@dataclass(frozen=True)
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


NULL_TEXT: Final = "is the text 'null', as `pulumi config set` writes it: take its quotes away, or the key"

Found = Iterator[tuple[str, str]]
"""What a rule yields: places in the stack file (`Problem.where`), and what is wrong with each."""


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
    return [_problem(details, model, prefix) for details in error.errors(include_url=False) if not _follows(details)]


def _follows(details: Mapping[str, Any]) -> bool:
    """Whether it only counts: a list that would be long enough if its entries were right."""
    return details["type"] == "too_short" and len(details["input"]) >= int(details["ctx"]["min_length"])


def _problem(details: Mapping[str, Any], model: Any, prefix: str) -> Problem:
    # "[key]" marks that a key itself is wrong, where a stack file does not happen to have a key of that name.
    # "[number]" and "[range]" say which of two forms a value has.
    unsaid = {"[number]", "[range]", *(() if details["type"] == "extra_forbidden" else ("[key]",))}
    path = [str(part) for part in details["loc"] if part not in unsaid]
    where = ".".join([prefix, *path])
    return Problem(where, what_became(where) or _message(details, model, path))


def _message(details: Mapping[str, Any], model: Any, path: list[str]) -> str:
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            message = unknown_name(path[-1], fields_of(_kind_at(model, path[:-1])), what="a known key")
        case _ if given is None:
            message = "is empty: write what belongs there, or leave the key out"
        case "missing":
            message = "is required but not set"
        case "literal_error" | "enum":
            allowed = [part.strip("' ") for part in str(details["ctx"]["expected"]).replace(" or ", ",").split(",")]
            message = unknown_name(_bare(given), allowed, what="one of the allowed values")
        case "value_error":
            # A setting may be a password, and its key is told as the place.
            value = "" if isinstance(given, Mapping | BaseModel) or "settings" in path else f"{_shown(given)} "
            message = f"{value}{details['ctx']['error']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            message = f"{_shown(given)} is not a map of keys to values"
        case "tuple_type":
            message = f"{_shown(given)} is not a list; write a list: [{_bare(given)}]"
        case "too_short" | "too_long":
            least, most = details["ctx"].get("min_length"), details["ctx"].get("max_length")
            bound = f"at most {most}" if least is None else f"at least {least}"
            what = "characters" if isinstance(given, str) else "entries"
            message = f"{_shown(given)} has {len(given)} {what}; {bound}"
        case kind if kind in _TYPES:
            message = f"{_shown(given)} is {_TYPES[kind]}"
        case _:
            message = f"{_shown(given)} is not allowed: {details['msg'][0].lower()}{details['msg'][1:]}"
    return message


_TYPES = {
    "bool_type": "neither true nor false: write one of these, without quotes",
    "int_type": "not a whole number: write one without quotes, unit and leading 0 (docs/stack-file says in which unit)",
    "string_type": "not text: write it in quotes",
}
"""What a value is that should be a switch, a number or text."""

_LONGEST = 200
"""Characters of a value in a message at most."""


def _shown(given: Any) -> str:
    """A value as its writer knows it: as YAML has it, not as Python has; of a long one the beginning."""
    text = repr(given) if isinstance(given, str) else _bare(given)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _bare(given: Any) -> str:
    """The same without quotes around text."""
    if isinstance(given, str):
        return given
    return given.isoformat() if isinstance(given, date) else json.dumps(given, default=str)


def _kind_at(model: Any, path: list[str]) -> Any:
    """The type at a place inside a model."""
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
    return current


def fields_of(annotation: Any) -> list[str]:
    """Names of the fields of the model that an annotation wraps; none if it is no model."""
    kind = _unwrap(annotation)
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _unwrap(annotation: Any) -> Any:
    """The model inside `Annotated[...]`, `... | None` and `int | ...`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            forms = [_unwrap(arg) for arg in get_args(annotation) if arg is not type(None)]
            return next((form for form in forms if isinstance(form, type) and issubclass(form, BaseModel)), forms[0])
        else:
            return annotation


GONE: Final = {
    "cloud.backups": ": remove it. Make the bucket and its access key with the vendor's command. Of one that was made "
    "here, Pulumi has to forget all six resources before the next `up` (docs/backups.md)",
    "cloud.gpu_stack": ": remove it. Machines have the vendor's drivers, always. Where it was `operators`, the next "
    "`up` removes NVIDIA's operators at once: drain all GPU pools first",
    "controller.replicas": ": remove it (where there are two, `kubectl delete pod controller-1 -n NAMESPACE` first), "
    "or set controller.standby: true instead (docs/availability.md). With controller.storage_class add "
    "controller.access_mode: ReadWriteMany, so that the volume stays",
    "logs": ": remove it. The next `up` removes the collector: have one of yours read the pods' standard output, as of "
    "all other pods (docs/diagnose.md)",
    "reservations": ": remove it. Slurm's own command makes and changes them: `scontrol create reservation` "
    "(docs/scheduling.md). Those that are there stay",
}
"""What became of sections and keys whose removal takes something away that runs or is kept. CHANGELOG.md has all."""


def what_became(where: str) -> str | None:
    """Of such a section or key; None for any other."""
    if where not in GONE:
        return None
    return f"this {'key' if '.' in where else 'section'} is gone{GONE[where]}"
