"""Asks the pods: the controller for the reports of all nodes, a worker to run one check."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from typing import Any

from cli.errors import USAGE, Failure
from cli.health.nodes import Nodes, in_order, parse_nodes
from cli.kubectl.client import Kubectl, complaint, hint_after, in_controller
from cli.kubectl.pods import Pod, pod_of
from config.errors import nearest
from images.common.health.slurm import SlurmError
from slurm.health import TESTER, WATCH
from slurm.names import WORKER
from slurm.rights import WITHOUT_SET_UP

NOT_CHECKED = 3
"""Exit status when nobody knows, as the workers' own program has it."""

MOST_NAMES = 12
"""Names of nodes in a message; the others are counted."""

_NODES = "date +%s && scontrol show nodes --json"
_HEALTH = "/usr/libexec/slurmstack/health"
_TESTS = f"/usr/libexec/slurmstack/{TESTER}"
_CODES = (0, 1, NOT_CHECKED)
_NO_PROGRAM = "no such file or directory"
_OLD_IMAGE = "its image has no health checks yet: `slurmstack up` brings it up to date"
_AWAY = "`slurmstack status` shows whether controller-0 runs"


def read_nodes(kubectl: Kubectl, namespace: str, names: Iterable[str] = ()) -> Nodes:
    """All nodes, or those of these names, in the order of their names. Raises Failure."""
    done = in_controller(kubectl, namespace, "sh", "-c", _NODES)
    if done.returncode != 0:
        why = complaint(done)
        if "NotFound" in why:
            refuse_no_namespace(kubectl, namespace)
        raise Failure(f"the controller could not be asked for the nodes: {why}", hint=hint_after(why, _AWAY))
    clock, _, printed = done.stdout.partition("\n")
    try:
        nodes = parse_nodes(printed, float(clock))
    except (ValueError, SlurmError) as error:
        raise Failure(f"what the controller says of its nodes is not understood: {error}") from error
    wanted = list(names)
    for name in wanted:
        _refuse_unknown(name, [node.name for node in nodes.nodes])
    return nodes.only(wanted) if wanted else nodes


def workers(kubectl: Kubectl, namespace: str) -> list[Pod]:
    """The pods of the nodes, in the order of their names. Raises Failure if there is not even a namespace."""
    items = kubectl.items("pod", "-n", namespace, "-l", f"app.kubernetes.io/component={WORKER}")
    if not items:
        refuse_no_namespace(kubectl, namespace)
    return sorted((pod_of(item) for item in items), key=lambda pod: in_order(pod.name))


def run_check(kubectl: Kubectl, namespace: str, node: str, check: str) -> tuple[dict[str, Any], int]:
    """Run a check on a node: what it found, and the exit status. Raises Failure."""
    _refuse_absent(node, workers(kubectl, namespace))
    done = _in_pod(kubectl, namespace, node, "run", check, "--json")
    if done.returncode == USAGE:
        # The node's own program ends with the command that shows its checks there; the hint has the one for here.
        why = complaint(done).partition("; `health list`")[0]
        raise Failure(f"node {node}: {why}", hint=f"`slurmstack health list --node {node}` shows all", code=USAGE)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        found = {}
    if not found or done.returncode not in _CODES:
        raise _failed(f"{check} could not be run on node {node}", done)
    return found, done.returncode


def measure(kubectl: Kubectl, namespace: str, node: str) -> int:
    """Have the tests of nodes measure one; what is found is printed as it comes. The exit status of the program."""
    refuse_no_namespace(kubectl, namespace)
    where = ("exec", "-n", namespace, f"deployment/{WATCH}", "-c", TESTER, "--")
    command = [*kubectl.command(), *where, _TESTS, "--node", node]
    return subprocess.run(command, env={**os.environ, **kubectl.environment}, check=False).returncode


def list_checks(kubectl: Kubectl, namespace: str, node: str | None) -> tuple[str, str]:
    """The name of a node, this one if given, and the list of its checks as it prints it. Raises Failure."""
    pods = workers(kubectl, namespace)
    if node is None:
        running = [pod.name for pod in pods if pod.phase == "Running"]
        ready = [pod.name for pod in pods if pod.phase == "Running" and pod.ready]
        node = next(iter([*ready, *running]), None)
        if node is None:
            raise Failure("no worker runs that could be asked", hint="`slurmstack status` shows the pods")
    _refuse_absent(node, pods)
    done = _in_pod(kubectl, namespace, node, "list")
    if done.returncode != 0:
        raise _failed(f"node {node} could not be asked for its checks", done)
    return node, done.stdout


def refuse_no_namespace(kubectl: Kubectl, namespace: str) -> None:
    """Raises Failure if there is none; not for those who may not ask."""
    done = kubectl.run("get", "--ignore-not-found", "namespace", namespace, "-o", "name", check=False)
    if done.returncode == 0 and not done.stdout.strip():
        raise Failure(f"there is no namespace {namespace}", hint="`slurmstack up` makes it")


def _in_pod(kubectl: Kubectl, namespace: str, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return kubectl.run(
        "exec", "-n", namespace, node, "-c", "slurmd", "--", *WITHOUT_SET_UP, _HEALTH, *words, check=False
    )


def _failed(what: str, done: subprocess.CompletedProcess[str]) -> Failure:
    why = complaint(done)
    return Failure(f"{what}: {why}", hint=hint_after(why, _OLD_IMAGE if _NO_PROGRAM in why else ""))


def _refuse_absent(node: str, pods: list[Pod]) -> None:
    """Raises Failure where nothing can be run. A pod that is leaving still has its jobs, and so can be asked."""
    _refuse_unknown(node, [pod.name for pod in pods])
    phase = next(pod.phase for pod in pods if pod.name == node)
    if phase not in {"Running", "Leaving"}:
        raise Failure(
            f"the pod of node {node} does not run: {phase}",
            hint="`slurmstack health` shows what it said last; `slurmstack status` shows the pods",
        )


def _refuse_unknown(name: str, names: list[str]) -> None:
    """Raises Failure with the names that there are."""
    if name in names:
        return
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    guess = nearest(name, names)
    there = f"there are: {listed}" if names else "there are none"
    raise Failure(f"there is no node {name!r}; {there}", hint=f"did you mean {guess}?" if guess else "", code=USAGE)
