"""Asks the pods: the controller for the reports of all nodes, a worker to run one check."""

from __future__ import annotations

import subprocess

from cli.errors import USAGE, Failure
from cli.health.nodes import Nodes, parse_nodes
from cli.kubectl.client import Kubectl, complaint, hint_after, in_controller
from images.common.health.slurm import SlurmError
from slurm.health import TESTER, WATCH
from slurm.rights import WITHOUT_SET_UP

NOT_CHECKED = 3
"""Exit status when nobody knows, as the workers' own program has it."""

_NODES = "date +%s && scontrol show nodes --json"
_HEALTH = "/usr/libexec/slurmstack/health"
_TESTS = f"/usr/libexec/slurmstack/{TESTER}"
_CODES = (0, 1, NOT_CHECKED)
_AWAY = "`slurmstack status` shows whether controller-0 runs"


def read_nodes(kubectl: Kubectl, namespace: str) -> Nodes:
    """All nodes, in the order of their names. Raises Failure."""
    done = in_controller(kubectl, namespace, "sh", "-c", _NODES)
    if done.returncode != 0:
        why = complaint(done)
        if "NotFound" in why:
            refuse_no_namespace(kubectl, namespace)
        raise Failure(f"the controller could not be asked for the nodes: {why}", hint=hint_after(why, _AWAY))
    clock, _, printed = done.stdout.partition("\n")
    try:
        return parse_nodes(printed, float(clock))
    except (ValueError, SlurmError) as error:
        raise Failure(f"what the controller says of its nodes is not understood: {error}") from error


def run_check(kubectl: Kubectl, namespace: str, node: str, check: str, *, as_json: bool) -> tuple[str, int]:
    """Run a check on a node: what its own program prints, and its exit status. Raises Failure."""
    words = ("run", check, *(["--json"] if as_json else []))
    where = ("exec", "-n", namespace, node, "-c", "slurmd", "--", *WITHOUT_SET_UP, _HEALTH)
    done = kubectl.run(*where, *words, check=False)
    why = complaint(done)
    if done.returncode == USAGE:
        raise Failure(f"node {node}: {why}", code=USAGE)
    if "NotFound" in why:
        refuse_no_namespace(kubectl, namespace)
        raise Failure(f"there is no node {node}: {why}", hint="`slurmstack status` shows all", code=USAGE)
    if not done.stdout or done.returncode not in _CODES:
        raise Failure(f"{check} could not be run on node {node}: {why}", hint=hint_after(why, ""))
    return done.stdout, done.returncode


def measure(kubectl: Kubectl, namespace: str, node: str) -> int:
    """Have the tests of nodes measure one; what is found is printed as it comes. The exit status of the program."""
    refuse_no_namespace(kubectl, namespace)
    where = ("exec", "-n", namespace, f"deployment/{WATCH}", "-c", TESTER, "--")
    command = [*kubectl.command(), *where, _TESTS, "--node", node]
    return subprocess.run(command, check=False).returncode


def refuse_no_namespace(kubectl: Kubectl, namespace: str) -> None:
    """Raises Failure if there is none; not for those who may not ask."""
    done = kubectl.run("get", "--ignore-not-found", "namespace", namespace, "-o", "name", check=False)
    if done.returncode == 0 and not done.stdout.strip():
        raise Failure(f"there is no namespace {namespace}", hint="`slurmstack up` makes it")
