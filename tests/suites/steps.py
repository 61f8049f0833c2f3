"""What the suites consist of. Each step is one pytest process; nothing runs beside it but its own workers."""

from __future__ import annotations

from dataclasses import dataclass

SLURMSTACK = ("-m", "cli.entry")

UP = (*SLURMSTACK, "local", "up")
DOWN = (*SLURMSTACK, "local", "down")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A part of a suite."""

    name: str
    about: str
    """A few words for the heading."""
    pytest: tuple[str, ...] = ()
    """Arguments of pytest; none: the step consists of `before` alone."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands of this Python, run before pytest, and again before its second try."""
    after: tuple[tuple[str, ...], ...] = ()
    """Commands of this Python, run at the end whatever has happened, and before a second try."""
    needs_no_cluster: bool = False
    """Whether the step starts and removes the local cluster itself, so that there must be none."""


GATE = (
    Step(
        name="build",
        about="Kubernetes and the images of Slurm 24.11; nothing where they are in the cache",
        before=((*SLURMSTACK, "local", "build"),),
    ),
    Step(
        name="program",
        about="units and the recorded graph, without any process",
        pytest=("-n", "2", "tests/unit", "tests/graph"),
    ),
    Step(
        name="daemons",
        about="real Slurm 24.11 in namespaces; some of 26.05 where its images are in the cache",
        pytest=("-n", "auto", "-m", "gate", "--only-cached-images", "tests/slurm"),
    ),
    Step(
        name="end-to-end",
        about="make up, scale, settings, scale-in and destroy under jobs, make down on a real Kubernetes",
        pytest=("-n", "0", "-x", "tests/gate"),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
)

_LANES = ("-n", "3", "-m", "not disruptive and not watch and not failures")

FULL = (
    Step(name="programs", about="real programs without a cluster", pytest=("-n", "2", "tests/programs")),
    Step(
        name="daemons-24.11",
        about="real Slurm 24.11",
        pytest=("-n", "auto", "-m", "not soak", "--slurm-version", "24.11", "tests/slurm"),
    ),
    Step(
        name="daemons-26.05",
        about="real Slurm 26.05",
        pytest=("-n", "auto", "-m", "not soak", "--slurm-version", "26.05", "tests/slurm"),
    ),
    Step(
        name="soak", about="many events, slow checks and full volumes", pytest=("-n", "4", "-m", "soak", "tests/slurm")
    ),
    Step(
        name="lanes",
        about="what can run side by side on one local Kubernetes",
        pytest=(*_LANES, "tests/images", "tests/network", "tests/e2e"),
        before=(UP,),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
    Step(
        name="watch",
        about="monitoring, doctor, backups, an upgrade and docs/own-cluster.md on a local Kubernetes",
        pytest=("-n", "2", "-m", "watch", "tests/e2e"),
        before=(UP,),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
    Step(
        name="machines",
        about="machines that are lost, reset and taken away",
        pytest=("-n", "0", "-m", "disruptive", "tests/e2e"),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
    Step(
        name="failures",
        about="the contract about failures (tests/e2e/failures.md), on a local Kubernetes",
        pytest=("-n", "0", "-m", "failures and not standby", "tests/e2e"),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
    Step(
        name="standby",
        about="the part of that contract with a controller that stands by",
        pytest=("-n", "0", "-m", "failures and standby", "tests/e2e"),
        after=(DOWN,),
        needs_no_cluster=True,
    ),
    Step(
        name="clients",
        about="PyTorch, Ray, Jupyter, Nextflow and containers as users install them, from the registries",
        pytest=("-n", "0", "tests/clients"),
    ),
    Step(name="guests", about="virtual machines with cgroups v2", pytest=("-n", "2", "tests/machine")),
)


def chosen(steps: tuple[Step, ...], names: list[str]) -> tuple[Step, ...]:
    """The steps of these names, all if there are none. Raises ValueError for a name that no step has."""
    known = [step.name for step in steps]
    for name in names:
        if name not in known:
            raise ValueError(f"no step {name!r}; there are: {', '.join(known)}")
    return tuple(step for step in steps if not names or step.name in names)
