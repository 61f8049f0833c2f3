"""`slurmstack:health`: what is looked at on the nodes, what follows from it, and tests of idle nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, field_validator

from config.base import Limit, Section, once
from config.errors import unknown_name

TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu-speed": ("events",),
    "memory-bandwidth": ("write",),
    "filesystem-throughput": ("read", "write"),
    "nccl-node": ("busbw",),
    "nccl-infiniband": ("busbw",),
}
"""Test -> the figures that it measures (images/health/node_tests)."""


def _test(name: str) -> str:
    if name not in TESTS:
        raise ValueError(unknown_name(name, TESTS, what="a test").removeprefix(f"{name!r} "))
    return name


def _expected(expected: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    for platform, tests in expected.items():
        for test, figures in tests.items():
            if test not in TESTS:
                raise ValueError(f"of {platform}: {unknown_name(test, TESTS, what='a test')}")
            for figure in figures:
                if figure not in TESTS[test]:
                    raise ValueError(f"of {platform}: {unknown_name(figure, TESTS[test], what=f'a figure of {test}')}")
    return expected


TestName = Annotated[str, AfterValidator(_test)]
Minimum = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


class NodeTests(Section):
    """Tests that measure nodes and compare them with what is expected of their kind."""

    enabled: bool = Field(default=False, strict=True)
    """Whether there are any."""
    run: Annotated[tuple[TestName, ...], AfterValidator(once)] = tuple(TESTS)
    """Which."""
    expected: Annotated[dict[str, dict[str, dict[str, Minimum]]], AfterValidator(_expected)] = Field(
        default_factory=dict
    )
    """The least that is expected, by pool or platform (`8x NVIDIA H200`), test and figure. Of what is not known here or
    in our own table (images/health/node_tests/expected.json) figures are told and nothing follows."""
    directory: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]*$")] = "/var/tmp"
    """Where the throughput of the file system is measured, in the jail."""


CHECKS: Final[Mapping[str, frozenset[str]]] = {
    "disks": frozenset({"enough_gib", "fail_percent", "warn_percent"}),
    "dns": frozenset(),
    "filesystem": frozenset({"fail_seconds"}),
    "gpu-free": frozenset({"used_mib"}),
    "gpu-presence": frozenset(),
    "infiniband": frozenset({"gigabits", "ports"}),
    "munge": frozenset(),
}
"""Check -> its thresholds. Their meanings and defaults: docs/health.md."""

KUBERNETES: Final = "kubernetes"
"""What the watcher itself finds out about the machines; can be told only (`report_only`), not turned off as a check."""


def _known(names: Iterable[str], allowed: Iterable[str], what: str) -> None:
    allowed = sorted(allowed)
    for name in names:
        if name not in allowed:
            raise ValueError(unknown_name(name, allowed, what=what))


def _thresholds(thresholds: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    _known(thresholds, CHECKS, "a check")
    for check, limits in thresholds.items():
        _known(limits, CHECKS[check], f"a threshold of {check}" if CHECKS[check] else f"a threshold: {check} has none")
    return thresholds


CONDITION: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_./]{0,250}[A-Za-z0-9])?$"
"""A type of node conditions."""


class Machines(Section):
    """The Kubernetes nodes below the workers."""

    follow: bool = Field(default=True, strict=True)
    """Whether they are looked at: a node whose machine is cordoned, not ready or gone is drained, and its jobs are
    requeued when it is gone. Needs the right to read all nodes of the Kubernetes cluster."""
    drain_conditions: tuple[Annotated[str, Field(pattern=CONDITION)], ...] = ()
    """Types of node conditions that are to be drained for while they are True."""
    requeue_after: int | None = Field(default=None, ge=0, le=604_800, strict=True)
    """Seconds that jobs may go on when their machine is wanted free (cordoned, not ready, one of `drain_conditions`, or
    to be released for a hardware fault); then they are requeued. Default: to their end."""
    release: Literal["none", "cordon"] = "none"
    """What becomes of a machine with a hardware fault, or with one of `drain_conditions`, that is drained and free of
    jobs. `cordon`: its Kubernetes node is cordoned and annotated, for a cloud's controller or a person to replace it.
    Needs the right to change all nodes of the Kubernetes cluster."""
    release_after: int = Field(default=600, ge=0, le=604_800, strict=True)
    """Seconds that the drain has to stand before a machine is released: a fault that goes away is not worth one."""
    release_condition: Annotated[str, Field(pattern=CONDITION)] | None = None
    """Type of a condition that is set on the Kubernetes node of a released machine, for a cloud's own repair.
    `HardwareIssuesSuspected` for Nebius."""
    max_unavailable: Limit = 1
    """How many machines may be released, or not ready, at a time: a number, or a part of all such as `5%`."""

    def _problem(self) -> str | None:
        wanted = self.release != "none" and not self.follow
        return "has follow: false, but follow: true is needed for release" if wanted else None


class Program(Section):
    """A site's own check: a program in the jail. Exit status 0 is well; else its first line says what is wrong."""

    command: tuple[str, ...] = Field(min_length=1)
    """The program's path in the jail, and its arguments, for example `[/usr/sbin/nhc, -v]`. In pools without the jail:
    in the worker's image."""
    seconds: int = Field(default=10, ge=1, le=30, strict=True)
    """How long it may take; what takes longer is `not checked`. All checks of a node together have 40 s."""
    fault: Literal["user", "node", "hardware"] = "node"
    """What is at fault where it fails: what a job has left, the node's software, or the machine."""
    gpus: bool = Field(default=False, strict=True)
    """Whether it runs only in pools with GPUs of NVIDIA's."""

    @field_validator("command")
    @classmethod
    def _is_a_path(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0].startswith("/"):
            raise ValueError(f"begins with {command[0]!r}; write the whole path, as in /usr/sbin/nhc")
        return command


class Health(Section):
    """Checks on every worker, each interval and around each job, and the drains that follow."""

    enabled: bool = Field(default=True, strict=True)
    """Whether there are any."""
    programs: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$")], Program] = Field(default_factory=dict)
    """Checks of your own, by their names: LBNL's NHC, NVIDIA's DCGM, a script."""
    disabled: Annotated[tuple[str, ...], AfterValidator(once)] = ()
    """Checks that do not run."""
    report_only: Annotated[tuple[str, ...], AfterValidator(once)] = ()
    """Checks whose failure is told but drains nothing and refuses no job. `kubernetes` stands for what is found about
    machines."""
    thresholds: Annotated[
        dict[str, dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]], AfterValidator(_thresholds)
    ] = Field(default_factory=dict)
    """Limits of the checks that differ from their defaults: `{disks: {fail_percent: 97}}`."""
    max_drained: Limit = "10%"
    """How many nodes may be drained for checks at a time: a number, or a part of all nodes such as `10%`, which is at
    least one node. The last node that takes jobs is never drained."""
    tests: NodeTests = Field(default_factory=NodeTests)
    """Tests of nodes that run as Slurm jobs."""
    machines: Machines = Field(default_factory=Machines)
    """What is known about the Kubernetes nodes below the workers."""

    def _problem(self) -> str | None:
        for name in self.programs:
            if name in CHECKS or name in TESTS or name == KUBERNETES:
                return f"has programs.{name}, and a check of ours has this name; take another one"
        known = [*CHECKS, *self.programs]
        _known(self.disabled, known, "a check, in disabled")
        _known(self.report_only, [*known, KUBERNETES], "a check, in report_only")
        return None
