"""What the programs around a job have in common: Slurm's `Prolog` and `Epilog`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from images.common import job_directory
from images.common.command import Runner
from images.common.gpu_jobs import GpuJobs
from images.health import state
from images.health.contract import Node, Result, Status
from images.health.local import Local, find_local, pod_environment
from images.health.registry import Registry, find_checks
from images.health.report import line_of
from images.health.runner import run_checks
from images.health.tools import Tools

SECONDS: Final = 2.0
"""For all checks together: a user waits for the prolog, and the node takes no other job before the epilog's end."""

_WHEN: Final = {"prolog": "before", "epilog": "after"}


@dataclass(kw_only=True)
class AroundJob:
    """A program that slurmd starts for one job."""

    local: Local
    registry: Registry
    log: Callable[[str], None]
    runner: Runner
    environment: Mapping[str, str]
    """What slurmd tells about the job."""
    jobs: Path = job_directory.JOBS
    spool: Path = job_directory.SPOOL
    gpu_jobs: GpuJobs = field(default_factory=GpuJobs)
    seconds: float = SECONDS

    @classmethod
    def in_pod(cls, log: Callable[[str], None]) -> Self:
        """The program in the pod in which it was started."""
        local = find_local(pod_environment())
        return cls(
            local=local,
            registry=find_checks(node=local.node),
            log=log,
            runner=Tools(),
            environment=os.environ,
        )

    def look(self, node: Node, context: Literal["prolog", "epilog"]) -> dict[str, Result]:
        """Run the checks of this context, and tell what is not well. Returns those that failed.

        These run in the next interval too: their results are then in the report, and so is that they are well.
        """
        checks = self.registry.of(context, node, self.local.off)
        if not checks:
            return {}
        outcomes = run_checks(checks, node, self.local.thresholds, seconds=self.seconds, shared=False)
        for name, found in outcomes.items():
            if found.result.status is not Status.OK:
                self.log(f"{_WHEN[context]} job {node.job}: {line_of(name, found.result)}")
        failed = {name: found.result for name, found in outcomes.items() if found.result.status is Status.FAIL}
        if failed:
            try:
                state.remember_again(node, state.again(node) | set(failed))
            except OSError as error:
                self.log(f"cannot remember: {error}")
        return failed
