"""The stack file while it is made: what `slurmstack validate` refuses goes out again, and is told in its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

from pydantic import BaseModel

from cli.importing.files import Parameter
from cli.importing.keys import DEFAULTS, OTHERWISE, WHY
from config import ConfigError, Problem, load_config
from images.common.slurm_records import amounts, compress

Path = tuple[str, ...]


class Draft:
    """Sections of a stack file, and from where in the old files each value is."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.read: list[list[Parameter]] = []
        """Lines of slurm.conf and gres.conf."""
        self.taken: dict[Path, tuple[Parameter, ...]] = {}
        """Place in the stack file -> where its value is from."""
        self.left: list[tuple[Parameter, str]] = []
        """What was not taken, and why."""
        self.defaults = set(DEFAULTS)
        """`key=value` in small letters, of Slurm and of our own slurm.conf."""

    def put(self, path: Path, value: Any, *parameters: Parameter) -> None:
        """Set a value, which is from these."""
        place = self.sections
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
        self.taken[path] = tuple(dict.fromkeys(parameters))

    def leave(self, parameter: Parameter, why: str) -> None:
        """Note why something is not taken."""
        if (parameter, why) not in self.left:
            self.left.append((parameter, why))

    def is_default(self, parameter: Parameter) -> bool:
        """Whether it says what holds anyway."""
        return f"{parameter.key}={parameter.value}".lower() in self.defaults

    def put_field(self, place: Path, model: type[BaseModel], key: str, parameter: Parameter) -> bool:
        """Set the field of a section that has the name of Slurm's key, `max_time` of `MaxTime`, if there is one."""
        field = next((field for field in model.model_fields if field.replace("_", "") == key.lower()), "")
        if field:
            value = _typed(str(model.model_fields[field].annotation), field, parameter.value)
            self.put((*place, field), value, parameter)
        return bool(field)

    def put_option(self, place: Path, model: type[BaseModel], key: str, parameter: Parameter) -> None:
        """Set a field of a section, else a setting; `validate` judges all at once."""
        told_later = self.is_default(parameter) or (key in WHY and key != "state")
        if not (told_later or self.put_field(place, model, key, parameter)):
            value = f'"{parameter.value}"' if re.search(r"\s", parameter.value) else parameter.value
            self.put((*place, "settings", parameter.key), plain(value), parameter)

    def settle(self) -> None:
        """Take out what is refused, with the reason that `validate` gives."""
        while found := [(path, one) for one in problems_of(self.sections) if (path := self._about(one))]:
            for path, problem in found:
                for parameter in self.taken.get(path, ()):
                    self.leave(parameter, problem.message)
                self.remove(path)

    def leave_rest(self) -> None:
        """Note every line, and every word of a line that is taken, of which nothing was said until now."""
        taken = {parameter for parameters in self.taken.values() for parameter in parameters}
        told = {parameter for parameter, _ in self.left}
        of_all = {pairs[0].key.lower(): pairs[0] for pairs in self.read}  # to Slurm, the last one is
        for pairs in self.read:
            if pairs[0] in told - taken:
                continue  # the whole line is left
            rest = [word for word in pairs if word not in taken | told]
            by_words = len(rest) < len(pairs) or self.is_default(pairs[0]) or pairs[0].value.upper() == "DEFAULT"
            for word in rest if by_words else pairs[:1]:
                default = self.is_default(word) and self.is_default(of_all.get(word.key.lower(), word))
                if not default and word.value.upper() != "DEFAULT":
                    self.leave(word, WHY.get(word.text.lower(), WHY.get(word.key.lower(), OTHERWISE)))

    def told(self) -> Iterator[str]:
        """A line for each reason, those that differ in a name alone as one; in the last one what Slurm has to judge."""
        groups: dict[tuple[str, str, str], dict[Parameter, list[str]]] = {}
        for one, why in self.left:
            alike = one.file, one.key.lower() or one.text, re.sub("'[^']*'", "", why)
            groups.setdefault(alike, {}).setdefault(one, []).append(why)
        for group in groups.values():
            first, *others = group
            lines = {str(one.line) for one in others} - {str(first.line)}
            more = f" (likewise in lines {compress(lines).strip('[]')})" if lines else ""
            yield f"{first.file}:{first.line}: {first.text}: {'; '.join(group[first])}{more}"
        if settings := sorted({path[-1] for path in self.taken if path[-2:-1] == ("settings",)}):
            yield f"settings, which Slurm itself tries at `up`: {', '.join(settings)}"

    def _about(self, problem: Problem) -> Path:
        """The value at a problem's place, else in it the one told of first or the last, else the nearest one around it.

        Partitions may be `std` and `std.q`: the longest name is meant. Rules have Slurm's keys in small letters.
        """
        where = f"{problem.where}.".lower()
        places = {path: f"{'.'.join(path)}.".lower() for path in self.taken}
        around = [path for path, place in places.items() if where.startswith(place)]
        nearest: Path = max(around, key=lambda path: (len(places[path]), ".".join(path) in problem.where), default=())
        inside = [path for path, place in places.items() if path[: len(nearest)] == nearest and place.startswith(where)]
        told = [path for path in inside if path[-1] in problem.message] or inside[-1:] or [nearest]
        return min(told, key=lambda path: problem.message.find(path[-1] if path else ""))

    def remove(self, path: Path) -> None:
        """Take a value out, and what is in it."""
        place = self.sections
        for part in path[:-1]:
            place = place.get(part, {})
        place.pop(path[-1], None)
        if not place and path[-2:-1] == ("settings",):
            self.remove(path[:-1])
        self.taken = {other: parameter for other, parameter in self.taken.items() if other[: len(path)] != path}


def problems_of(sections: dict[str, Any]) -> tuple[Problem, ...]:
    """What `slurmstack validate` says."""
    try:
        load_config(sections)
    except ConfigError as error:
        return error.problems
    return ()


def _typed(kind: str, field: str, text: str) -> Any:
    """As the stack file has it; what is not understood stays text, which `validate` refuses. `kind`: of the field."""
    if field == "fairshare" and text == "2147483647":  # what slurmdbd keeps for it
        return "parent"
    if field == "preempt_exempt_time" and text.isdecimal():
        return f"{int(text) // 60}:{int(text) % 60:02}"
    if "dict[" in kind:
        return {name: int(number) if isfinite(number) else text for name, number in amounts(text).items()}
    if "tuple[" in kind:
        return [part for part in text.split(",") if part]
    if re.search(r"\b(int|float)\b", kind):
        return float(text) if re.fullmatch(r"\d+\.\d+", text) else plain(text)
    if "Literal[" in kind or field == "cluster_name":
        text = re.sub("^(topology|preempt)/|_prio$|^gang,(?=suspend$)|(?<=^suspend),gang$", "", text.lower())
    return text


def plain(value: str) -> int | str:
    """A number as one, for people's eyes; one with a leading zero stays as it is."""
    return int(value) if re.fullmatch("0|[1-9][0-9]{0,15}", value) else value
