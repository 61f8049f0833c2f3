"""What a check is: a small program with a declared contract.

A check looks at one thing and says how it is, in every interval (`HealthCheckProgram`) and by hand. It changes nothing,
and decides nothing: whether a node is drained is up to the watcher (`images/health/watch`), which sees all nodes. A
check that cannot tell says so (`not checked`); silence, a crash and a check that does not end in time count as that
too, never as healthy and never as a fault.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from images.common.command import Runner

Hardware = Literal["any", "gpu", "infiniband"]
"""What must be there. On a node without it the check does not run and gives no result; a node that *should* have it, as
the stack file says (`Node.gpus`), and does not is the fault of the checks that look for exactly that."""

FaultClass = Literal["user", "node", "hardware"]
"""Whose fault it is, and so what helps: something that a user's job left behind; the node's software and its
surroundings (a full disk, a file system that hangs); the machine (needs a reset or a replacement)."""

FAULTS: Final[Mapping[str, FaultClass]] = {"user": "user", "node": "node", "hardware": "hardware"}
"""The least grave first."""

STATE: Final = Path("/run/slurmstack/health")
"""Of the pod, and root's."""


class Status(enum.StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    """Not good, but jobs can run: told, never drained for."""
    FAIL = "fail"
    """Jobs should not start here: the node is drained for it."""
    NOT_CHECKED = "not checked"
    """Nobody knows: the tool is absent, hung, failed, or said something that the check does not understand."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one check found on one node."""

    status: Status
    message: str = ""
    """For people, in one line, with the figures: `/jail: 97 % of the space used, 95 % allowed`. Empty if all is
    well."""
    fault: FaultClass | None = None
    """Of a warning or failure; None else."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Figures for metrics: name with unit (Prometheus' rules) and perhaps labels -> value, for example
    `disk_used_ratio{path="/jail"}`. Without the prefix that all get, `slurmstack_health_`."""
    seconds: float = field(default=0.0, compare=False)
    """How long it took to find out."""


class UnknownError(Exception):
    """It cannot be told how something is; the text says why. A check that raises it is `not checked`."""


def ok(**values: float) -> Result:
    """All is well."""
    return Result(status=Status.OK, values=values)


def warn(fault: FaultClass, message: str, values: Mapping[str, float] | None = None) -> Result:
    """Not good."""
    return Result(status=Status.WARN, message=message, fault=fault, values=values or {})


def fail(fault: FaultClass, message: str, values: Mapping[str, float] | None = None) -> Result:
    """Jobs should not start here."""
    return Result(status=Status.FAIL, message=message, fault=fault, values=values or {})


def not_checked(why: str) -> Result:
    """Nobody knows."""
    return Result(status=Status.NOT_CHECKED, message=why)


def worst(results: Iterable[Result]) -> Result:
    """Several findings of one check as one result: the worst status, and all messages, the gravest first.

    A failure is worse than not knowing, and not knowing is worse than a warning.
    """
    order = [Status.OK, Status.WARN, Status.NOT_CHECKED, Status.FAIL]
    found = list(results) or [ok()]
    by_gravity = sorted(found, key=lambda result: order.index(result.status), reverse=True)
    status = by_gravity[0].status
    faults = [result.fault for result in found if result.status is status and result.fault]
    values: dict[str, float] = {}
    for result in found:
        values |= result.values
    return Result(
        status=status,
        message="; ".join(result.message for result in by_gravity if result.message),
        fault=max(faults, key=gravity, default=None),
        values=values,
    )


def gravity(fault: FaultClass | None) -> int:
    """The higher the graver."""
    return list(FAULTS).index(fault or "node")


@dataclass(frozen=True, kw_only=True)
class Node:
    """The node on which a check runs, and what the stack file says about it."""

    name: str
    """Slurm's name of it."""
    gpus: int = 0
    """GPUs that it should have."""
    shares_gpus: bool = False
    """Whether others use these GPUs, too: divided ones (MIG), or ones that are given out several times."""
    infiniband: bool = False
    """Whether it should have InfiniBand."""
    jail: Path | None = Path("/jail")
    """The shared root file system; None on a pool without one."""
    homes: Path | None = None
    """Homes, where they are on a volume of their own."""
    local_disks: tuple[Path, ...] = (Path("/"),)
    """Other file systems whose room matters."""
    job: str = ""
    """Number of the job, in a prolog."""
    job_gpus: tuple[int, ...] = ()
    """Indices of its GPUs."""
    other_jobs: bool = False
    """Whether the node has (other) jobs now: what a running job does is not a fault."""
    root: Path = Path("/")
    """Where /proc, /sys and /dev are found. Tests give another."""
    state: Path = STATE
    """A directory for what a check must remember until its next run, which a restart of the pod forgets."""

    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Limits that the site has set: `slurmstack:health.thresholds`, by check and name."""

    def limit(self, check: str, name: str, default: float) -> float:
        """The site's value, or the default of the check."""
        return float(self.limits.get(check, {}).get(name, default))

    def has(self, hardware: Hardware) -> bool:
        """Whether it should have what a check looks at. Whether it has is for the check to say."""
        return {"any": True, "gpu": self.gpus > 0, "infiniband": self.infiniband}[hardware]


@dataclass(frozen=True, kw_only=True)
class Check:
    """The declared contract of a check, and its program."""

    name: str
    """Short, in small letters with `-`: it is in drain reasons, metrics and options."""
    run: Callable[[Node, Runner], Result]
    """The program. It must not change anything on the node, may raise anything (which is `not checked`), and starts
    other programs only through the runner, with a time limit."""
    hardware: Hardware = "any"
    seconds: float = 5.0
    """Time limit. After it the check is ended, where the kernel lets it be, and counts as not checked."""
    between_jobs: bool = False
    """Whether it looks only while no job runs on the node. Meanwhile it says nothing, and what it has said holds."""


NAME_PREFIX: Final = "slurmstack_health_"
"""Of all metrics."""
