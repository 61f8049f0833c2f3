"""Which faults come when: the same for the same seed, so that what was found can be found again."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from cli.errors import USAGE, Failure
from slurm.names import ACCOUNTING, CONTROLLER, DATABASE, ELASTIC, LOGIN, WORKER

DELETE: Final = "delete"
LOSE: Final = "lose"
STOP: Final = "stop"
CRASH: Final = "crash"

WORDS: Final = {
    DELETE: "delete the pod",
    LOSE: "delete the pod without a goodbye",
    STOP: "end the main process (SIGTERM)",
    CRASH: "kill the main process (SIGKILL)",
}
"""Kind of fault -> for people."""

CONTAINERS: Final = {
    CONTROLLER: "slurmctld", ACCOUNTING: "slurmdbd", DATABASE: "mariadbd", LOGIN: "sshd", ELASTIC: "elastic",
}  # fmt: skip
"""Component -> its container with the main process, for those whose process is ended in place."""

_KINDS: Final = {
    CONTROLLER: (DELETE, LOSE, STOP),
    ACCOUNTING: (DELETE, LOSE, STOP),
    # MariaDB is no first process of its container, which nothing in there can kill.
    DATABASE: (DELETE, LOSE, CRASH),
    LOGIN: (DELETE, LOSE),
    ELASTIC: (DELETE, LOSE),
    WORKER: (DELETE, LOSE),
}

DEFAULT: Final = (CONTROLLER, ACCOUNTING, DATABASE, LOGIN, ELASTIC)
"""What may be hit unless something else is said: jobs run on. Workers only by name."""

BETWEEN: Final = (6.0, 20.0)
"""Seconds between two faults, at least and at most."""

_CALM: Final = 10.0
"""Seconds before the first fault and after the last one."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault."""

    at: float
    """Seconds after the begin."""
    component: str
    kind: str
    which: float
    """Which of the component's pods, in the order of their names: 0 the first, nearly 1 the last."""

    def pod(self, names: Sequence[str]) -> str:
        """The pod among those that are there."""
        return sorted(names)[int(self.which * len(names))]


def allowed(words: Collection[str]) -> tuple[str, ...]:
    """Components that were named, `controller,slurmdbd`; all but workers where none was. Raises Failure."""
    named = [part for word in words for part in word.split(",") if part]
    if unknown := [part for part in named if part not in _KINDS]:
        raise Failure(f"--allow {unknown[0]}: there is {', '.join(_KINDS)}", code=USAGE)
    return tuple(component for component in _KINDS if component in (named or DEFAULT))


def plan(seed: int, seconds: float, components: Sequence[str], *, controllers: int) -> list[Fault]:
    """The faults of a run, in their order.

    The only controller is never deleted without a goodbye: the next one could begin before it has ended, and two that
    write the same state destroy it.
    """
    chance, at, faults = random.Random(seed), _CALM, list[Fault]()  # noqa: S311  it is to be repeated
    while at <= seconds - _CALM and components:
        component = chance.choice(components)
        kind = chance.choice(_KINDS[component])
        if (component, kind, controllers) == (CONTROLLER, LOSE, 1):
            kind = DELETE
        faults.append(Fault(at=round(at, 1), component=component, kind=kind, which=chance.random()))
        at += chance.uniform(*BETWEEN)
    return faults


def shown(faults: Sequence[Fault]) -> str:
    """The plan for people."""
    return "\n".join(f"{fault.at:6.1f} s  {fault.component:<10} {WORDS[fault.kind]}" for fault in faults)
