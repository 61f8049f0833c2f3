"""A site's own checks: programs in the jail, whose exit status says how it is and whose first line says what.

As with LBNL's NHC, Slurm's prologs and most monitoring: 0 is well, anything else is a fault. A program that cannot be
started, is killed or does not end in time says nothing about the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from images.common.command import NO_PROGRAM, TIMED_OUT, Runner
from images.common.health.contract import Check, FaultClass, Node, Result, Thresholds
from images.common.health.report import FAULTS
from images.health.tools import CANNOT_RUN
from images.health.verdict import fail, not_checked, ok

INSIDE: Final = "/usr/libexec/slurmstack/health-inside"
_LONGEST: Final = 200
"""Characters of its first line: a comment of a node has room for several checks."""


def checks_of(programs: Mapping[str, Any]) -> dict[str, Check]:
    """By name, from `programs` of the settings. Raises KeyError, TypeError, ValueError."""
    return {str(name): _check(str(name), program) for name, program in programs.items()}


def _check(name: str, program: Mapping[str, Any]) -> Check:
    command, seconds = [str(word) for word in program["command"]], float(program["seconds"])
    return Check(
        name=name,
        summary=f"{' '.join(command)} (this site's)",
        run=_runs(command, seconds, FAULTS[program["fault"]]),
        hardware="gpu" if program.get("gpus") else "any",
        seconds=seconds + 1,
    )


def _runs(command: list[str], seconds: float, fault: FaultClass) -> Callable[[Node, Runner, Thresholds], Result]:
    def run(node: Node, runner: Runner, _: Thresholds) -> Result:
        done = runner([INSIDE, str(node.jail or "/"), *command], timeout=seconds)
        lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines()]
        said = next(filter(None, lines), "")[:_LONGEST]
        if done.code == TIMED_OUT:
            return not_checked(f"{command[0]} did not end in {seconds:g} s")
        if done.code in {CANNOT_RUN, NO_PROGRAM} or done.code < 0:
            return not_checked(said or f"{command[0]} was ended by signal {-done.code}")
        return ok() if done.code == 0 else fail(fault, said or f"{command[0]} ended with {done.code}")

    return run
