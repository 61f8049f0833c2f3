"""What is said about a failure in the moment of it: a run that is cut short shows no summary."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.e2e.harness import SlurmOnKubernetes

_LINES_OF_MESSAGE = 6
_LOOK_S = 30
"""For each look at a cluster that may be broken, seconds."""


def at_a_glance(slurm: SlurmOnKubernetes) -> str:
    """Pods and machines that are not as they should be, what Slurm has of its nodes, and the last warnings."""
    namespace = ("-n", slurm.namespace)
    pods = _look(slurm, "get", "pods", *namespace, "--no-headers", "-o", "wide")
    machines = _look(slurm, "get", "nodes", "--no-headers")
    warnings = _look(
        slurm, "get", "events", *namespace, "--no-headers", "--field-selector=type=Warning", "--sort-by=.lastTimestamp"
    )
    slurmctld = ("exec", *namespace, "controller-0", "-c", "slurmctld", "--")
    shown = {
        "machines": [line for line in machines if " Ready " not in line],
        "pods": [line for line in pods if not _is_well(line)],
        "warnings": warnings[-5:],
        "sinfo": _look(slurm, *slurmctld, "sinfo", "-N", "-h", "-O", "NodeList,StateLong,Reason:60"),
        "squeue": _look(slurm, *slurmctld, "squeue", "-h")[:5],
    }
    return "\n".join(f"{name}: {line}" for name, lines in shown.items() for line in lines)


def _is_well(pod: str) -> bool:
    """For a line of `kubectl get pods`: name, ready ones of all, status."""
    _, ready, status, *_ = pod.split()
    of, _, all_of = ready.partition("/")
    return status == "Completed" or (status == "Running" and of == all_of)


def _look(slurm: SlurmOnKubernetes, *arguments: str) -> list[str]:
    command = [*slurm.kubectl.command(), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LOOK_S)
    except subprocess.TimeoutExpired:
        return [f"no answer within {_LOOK_S} s"]
    return (done.stdout or done.stderr).splitlines()


def in_short(report: Any) -> list[str]:
    """The failure's message, and what was noted beside it; empty for a report that is not one."""
    if not (report.failed or report.outcome == "rerun"):
        return []
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash else report.longrepr).splitlines()[:_LINES_OF_MESSAGE]
    beside = [line for name, text in report.sections if name in {"logs", "glance"} for line in text.splitlines()]
    return [f"{report.nodeid} ({report.when}, {report.outcome})", *(f"  {line}" for line in (*message, *beside))]
