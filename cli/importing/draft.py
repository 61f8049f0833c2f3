"""The stack file while it is made: what `slurmstack validate` refuses goes out again, and is told in its words."""

from __future__ import annotations

import re
from typing import Any

from cli.importing.files import Parameter
from config import ConfigError, Problem, load_config

_ROUNDS = 20
"""How often something may have to go because of what went before it."""
_POOL: dict[str, Any] = {"worker_nodes": {"n": {"size": 1, "resources": {"cpus": 1, "memory": "1Gi"}}}}
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
        self.known: set[str] = set()
        """Keys that our own slurm.conf has, in small letters."""

    @property
    def untried(self) -> tuple[str, ...]:
        """Keys that are taken as they are, which Slurm alone can judge."""
        settings = {path[-1] for path in self.taken if path[-2:-1] == ("settings",)}
        return tuple(sorted(key for key in settings if key.lower() not in self.known))

    def put(self, path: Path, value: Any, *parameters: Parameter) -> None:
        """Set a value, which is from these."""
        place = self.sections
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
        self.taken[path] = parameters

    def leave(self, parameter: Parameter, why: str) -> None:
        """Note why something is not taken."""
        if (parameter, why) not in self.left:
            self.left.append((parameter, why))

    def put_setting(self, path: Path, parameter: Parameter) -> None:
        """Set a key of slurm.conf or of a partition's line, which is looked at alone: `validate` judges all at once."""
        value = f'"{parameter.value}"' if re.search(r"\s", parameter.value) else parameter.value
        settings = {"settings": {parameter.key: value}}
        alone = {"slurm": settings} if path[0] == "slurm" else {"partitions": {"p": {"pools": ["n"], **settings}}}
        if problems := problems_of({**_POOL, **alone}):
            message = re.sub(r"^has (the key )?'?[\w=]+'?[,:] (which )?", "", problems[0].message)
            self.leave(parameter, re.sub(r"; (remove it|leave it out)$", "", message))
        else:
            self.put((*path, "settings", parameter.key), plain(value), parameter)

    def settle(self) -> None:
        """Take out what is refused, with the reason that `validate` gives."""
        for _ in range(_ROUNDS):
            found = [(path, problem) for problem in problems_of(self.sections) if (path := self._about(problem))]
            if not found:
                return
            for path, problem in found:
                for parameter in self.taken.get(path, ()):
                    self.leave(parameter, problem.message)
                self._remove(path)

    def leave_rest(self) -> None:
        """Note every line, and every word of a line that is taken, of which nothing was said until now."""
        taken = {parameter for parameters in self.taken.values() for parameter in parameters}
        told = {parameter for parameter, _ in self.left}
        used = taken | told | {*self.same}
        for pairs in self.read:
            if pairs[0] in told - taken:
                continue  # the whole line is left
            rest = [word for word in pairs if word not in used and word.value.upper() != "DEFAULT"]
            for parameter in rest if used.intersection(pairs) else pairs[:1]:
                self.leave(parameter, "has no effect: another one holds, or nothing in these files goes by it")

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

    def _remove(self, path: Path) -> None:
        place = self.sections
        for part in path[:-1]:
            place = place.get(part, {})
        place.pop(path[-1], None)
        self.taken = {other: parameter for other, parameter in self.taken.items() if other[: len(path)] != path}


def problems_of(sections: dict[str, Any]) -> tuple[Problem, ...]:
    """What `slurmstack validate` says."""
    try:
        load_config(sections)
    except ConfigError as error:
        return error.problems
    return ()


def plain(value: str) -> int | str:
    """A number as one, for people's eyes; one with a leading zero stays as it is."""
    return int(value) if re.fullmatch("0|[1-9][0-9]{0,15}", value) else value
