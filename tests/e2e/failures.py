"""What is said about a failure in the moment of it: a run that is cut short shows no summary."""

from __future__ import annotations

from typing import Any

from local import nodes, processes
from tests.e2e.harness import SlurmOnKubernetes

_FIRST_LINES, _LAST_LINES = 3, 5
"""Of a failure's message: what was wanted comes first, what a command said at its end comes last."""


def at_a_glance(slurm: SlurmOnKubernetes) -> str:
    """Pods and machines that are not as they should be, what Slurm has of its nodes, and the last warnings."""
    namespace = ("-n", slurm.namespace)

    def look(*arguments: str) -> list[str]:
        return slurm.look(*arguments).splitlines()

    pods = look("get", "pods", *namespace, "--no-headers", "-o", "wide")
    machines = look("get", "nodes", "--no-headers")
    warnings = look(
        "get", "events", *namespace, "--no-headers", "--field-selector=type=Warning", "--sort-by=.lastTimestamp"
    )
    lost = [line.split()[0] for line in machines if " Ready " not in line and line.startswith("node-")]
    daemons = [component for name in lost for component in nodes.components(name)]
    slurmctld = ("exec", *namespace, "controller-0", "-c", "slurmctld", "--")
    shown = {
        "machines": [line for line in machines if " Ready " not in line],
        "daemons": [line for component in daemons for line in _last_words(component)],
        "pods": [line for line in pods if not _is_well(line)],
        "warnings": warnings[-5:],
        "sinfo": look(*slurmctld, "sinfo", "-N", "-h", "-O", "NodeList,StateLong,Reason:60"),
        "squeue": look(*slurmctld, "squeue", "-h")[:5],
    }
    return "\n".join(f"{name}: {line}" for name, lines in shown.items() for line in lines)


def _last_words(component: str) -> list[str]:
    state = "runs" if processes.is_running(component) else "does not run"
    return [f"{component} {state}", *(line[:300] for line in processes.log_tail(component, 4).splitlines())]


def _is_well(pod: str) -> bool:
    """For a line of `kubectl get pods`: name, ready ones of all, status."""
    _, ready, status = (*pod.split(), "", "", "")[:3]
    of, _, all_of = ready.partition("/")
    return status == "Completed" or (status == "Running" and of == all_of)


def in_short(report: Any) -> list[str]:
    """The failure's message, and what was noted beside it; empty for a report that is not one."""
    if not (report.failed or report.outcome == "rerun"):
        return []
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).splitlines()
    long = len(lines) > _FIRST_LINES + _LAST_LINES
    message = [*lines[:_FIRST_LINES], "...", *lines[-_LAST_LINES:]] if long else lines
    beside = [line for name, text in report.sections if name in {"logs", "glance"} for line in text.splitlines()]
    return [f"{report.nodeid} ({report.when}, {report.outcome})", *(f"  {line}" for line in (*message, *beside))]
