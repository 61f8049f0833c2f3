"""The stack file while it is made: what `slurmstack validate` refuses goes out again, and is told in its words."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from pydantic import BaseModel

from cli.importing.files import Parameter
from cli.importing.keys import DEFAULTS, OTHERWISE, WHY
from config import ConfigError, Problem, load_config
from images.common.slurm_records import amounts

Path = tuple[str, ...]


class Draft:
    """Sections of a stack file, and from where in the old files each value is."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.read: list[list[Parameter]] = []
        """Lines of slurm.conf and gres.conf."""
        self.taken: dict[Path, tuple[Parameter, ...]] = {}
        """Place in the stack file -> where its value is from."""
        self.same: list[Parameter] = []
        """What is our default anyway."""
        self.left: list[tuple[Parameter, str]] = []
        """What was not taken, and why."""
        self.defaults = set(DEFAULTS)
        """`key=value` in small letters, of Slurm and of our own slurm.conf."""

    @property
    def untried(self) -> tuple[str, ...]:
        """Keys that are taken as they are, which Slurm alone can judge."""
        known = {default.partition("=")[0] for default in self.defaults}
        settings = {path[-1] for path in self.taken if path[-2:-1] == ("settings",)}
        return tuple(sorted(key for key in settings if key.lower() not in known))

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
            if "gang" in parameter.value.lower() and value != "suspend" and field.endswith("mode"):
                self.leave(parameter, "GANG: jobs take turns with preemption.mode suspend alone")
            self.put((*place, field), value, parameter)
        return bool(field)

    def put_setting(self, path: Path, parameter: Parameter) -> None:
        """Set a key of slurm.conf or of a partition's line."""
        value = f'"{parameter.value}"' if re.search(r"\s", parameter.value) else parameter.value
        self.put((*path, "settings", parameter.key), plain(value), parameter)

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
                if self.is_default(word) and self.is_default(of_all.get(word.key.lower(), word)):
                    self.same.append(word)
                elif word.value.upper() != "DEFAULT":
                    self.leave(word, WHY.get(word.key.lower(), OTHERWISE))

    def _about(self, problem: Problem) -> Path:
        """The value at a problem's place, else the last one in it, else the nearest one around it, else nothing.

        Partitions may be `std` and `std.q`: the longest name is meant. Rules have Slurm's keys in small letters.
        """
        where = f"{problem.where}.".lower()
        places = {path: f"{'.'.join(path)}.".lower() for path in self.taken}
        around = [path for path, place in places.items() if where.startswith(place)]
        nearest: Path = max(around, key=lambda path: (len(places[path]), ".".join(path) in problem.where), default=())
        inside = [path for path, place in places.items() if path[: len(nearest)] == nearest and place.startswith(where)]
        return inside[-1] if inside else nearest

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
    return re.sub("^(topology|preempt)/|_prio$|,?gang,?", "", text.lower()) if "Literal[" in kind else text


def plain(value: str) -> int | str:
    """A number as one, for people's eyes; one with a leading zero stays as it is."""
    return int(value) if re.fullmatch("0|[1-9][0-9]{0,15}", value) else value
