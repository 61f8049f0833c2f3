"""What runs, for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.health.present import printable
from cli.kubectl.client import SILENT_SLURMDBD
from cli.status.read import Status, is_down, missing_workers
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, CONTROLLER_HOST


def print_status(status: Status) -> None:
    """Tables for people. Names and reasons come from outside and are no markup."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not status.pods:
        console.print(f"nothing runs in namespace {status.namespace}")
        return
    pods = Table("POD", "STATE", "READY", "RESTARTS", "ON", box=None, pad_edge=False)
    for pod in status.pods:
        ready = Text("yes") if pod.ready else Text("no", style="red")
        pods.add_row(Text(pod.name), Text(pod.phase), ready, str(pod.restarts), Text(pod.node))
    console.print(pods)
    nodes = Table("SLURM NODE", "STATE", "JOBS ARE HELD TO", "REASON", box=None, pad_edge=False)
    for node in status.nodes:
        nodes.add_row(
            Text(node.name),
            Text(node.state, style="red" if is_down(node.state) else ""),
            Text(printable(node.confinement)),
            Text(printable(node.reason)),
        )
    console.print()
    if told := missing_workers(status.workers):
        console.print(told, soft_wrap=True)
        console.print()
    if status.slurmctld:
        logs = f"`kubectl logs -n {status.namespace} {CONTROLLER_HOST} -c slurmctld` and `-c munged`"
        console.print(f"slurmctld does not answer: {printable(status.slurmctld)}; see {logs}", soft_wrap=True)
    else:
        console.print(nodes if status.nodes else "slurmctld has no nodes")
    console.print()
    if status.slurmdbd_answers is False:
        logs = f"`kubectl logs -n {status.namespace} {ACCOUNTING_HOST} -c {ACCOUNTING}`"
        console.print(f"accounting: {SILENT_SLURMDBD}; see {logs}", soft_wrap=True)
    last = " (the one last taken)" if status.slurmctld and status.configuration == "active" else ""
    console.print(f"configuration: {status.configuration}{last}")
    console.print(f"login address: {status.login_address or 'none'}")
    if status.rest_address:
        console.print(f"REST API: {status.rest_address}")
