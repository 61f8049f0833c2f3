"""When the service replaces a worker's machine by itself."""

from __future__ import annotations

import pulumi_nebius as nebius

UNREACHABLE = "600s"
"""The kubelet has not answered for so long. Slurm gives a node up after 2 minutes (SlurmdTimeout) and has requeued its
jobs by then."""

BROKEN = "1800s"
"""The kubelet answers, but says that the machine is not ready. Jobs may still run, so people get time to look."""

AT_ONCE = "1s"


def worker_repair() -> nebius.Mk8sV1NodeGroupAutoRepairArgs:
    """Conditions of a Kubernetes node, each with how long it must last.

    An error of one GPU is no reason: jobs run on the others, and the node must be drained first. Whoever has drained it
    sets HardwareIssuesSuspected, upon which the machine is replaced at once. The names are those of the vendor's
    recipe for Slurm (nebius/nebius-solutions-library, 2026).
    """
    return nebius.Mk8sV1NodeGroupAutoRepairArgs(
        conditions=[
            _after("NodeReady", "UNKNOWN", UNREACHABLE),
            _after("NodeReady", "FALSE", BROKEN),
            _after("NebiusBootDiskIOError", "TRUE", UNREACHABLE),
            _after("NebiusContainerRuntimeError", "TRUE", BROKEN),
            nebius.Mk8sV1NodeGroupAutoRepairConditionArgs(type="NebiusGPUError", status="TRUE", disabled=True),
            _after("HardwareIssuesSuspected", "TRUE", AT_ONCE),
        ]
    )


def _after(type_: str, status: str, timeout: str) -> nebius.Mk8sV1NodeGroupAutoRepairConditionArgs:
    return nebius.Mk8sV1NodeGroupAutoRepairConditionArgs(type=type_, status=status, timeout=timeout)
