"""What runs, for people: one screen of 80 columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.kubectl.client import SILENT_SLURMDBD
from cli.status.questions import ListedNode
from cli.status.read import Jail, Pool, Queue, Roll, Status
from cli.status.snapshot import lost_slurmctld
from cli.text import ago, open_console, printable
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, BACKUP, CONTROLLER_HOST, REHEARSE, WORKER

_LISTED = 8
"""Nodes and pods of a pool that are shown one by one; the others are counted."""

_NAMES = 4
"""Names of nodes in one line."""

_GIB = 2**30

_BACKUPS = {BACKUP: "last backup", REHEARSE: "proven restore"}
"""CronJob -> what its last success is."""


def print_status(status: Status) -> None:
    """The screen. Names and reasons come from outside and are no markup."""
    open_console().print(Group(*_parts(status)))


def _parts(status: Status) -> Iterator[Table | Text]:
    """Below each other."""
    if not status.pods and "pods" not in status.unread and not status.nodes:
        yield Text(f"nothing runs in namespace {status.namespace}")
        if status.kept:
            from cli.change.owner import AFTERWARDS  # noqa: PLC0415  what it loads takes long

            yield from (Text("kept there by `destroy`:"), *(Text(f"  {printable(line)}") for line in status.kept))
            yield Text(AFTERWARDS)
        return
    yield from _pods(status)
    yield Text()
    for roll in status.rolls:
        yield from (_roll(roll), Text())
    if (workers := status.workers).ready < workers.wanted:
        yield from (Text(f"workers: {workers.ready} of {workers.wanted} ready", style="red"), Text())
    yield from _nodes(status)
    yield Text()
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(status):
        facts.add_row(Text(name, style="bold"), text)
    yield facts


def _pods(status: Status) -> Iterator[Table | Text]:
    """All pods but workers that are well: those are counted by pool."""
    names = {node.name for node in status.nodes}
    workers = [pod for pod in status.pods if pod.component == WORKER or pod.name in names]
    unready = [pod for pod in workers if not pod.ready or pod.phase != "Running"]
    table = Table("POD", "STATE", "READY", "RESTARTS", "ON", box=None, pad_edge=False)
    for pod in [*(pod for pod in status.pods if pod not in workers), *unready[:_LISTED]]:
        ready = Text("yes") if pod.ready else Text("no", style="red")
        table.add_row(Text(pod.name), Text(pod.phase), ready, str(pod.restarts), Text(pod.node))
    yield table
    if len(unready) > _LISTED:
        yield Text(f"and {len(unready) - _LISTED} more workers that are not ready")


def _nodes(status: Status) -> Iterator[Table | Text]:
    if status.slurmctld_lost_with:
        said = lost_slurmctld(status.slurmctld_lost_with, status.reached_by)
        yield Text("; ".join(said), style="red")
        return
    if status.slurmctld:
        pod = status.active_controller or CONTROLLER_HOST
        logs = f"`{status.reached_by} logs -n {status.namespace} {pod} -c slurmctld` and `-c munged`"
        yield Text(f"slurmctld does not answer: {printable(status.slurmctld)}; see {logs}", style="red")
        return
    if not status.nodes:
        yield Text("slurmctld has no nodes")
    table = Table("POOL", box=None, pad_edge=False)
    columns = ("wanted", "ready", "allocated", "idle", "drained", "down", "other")
    for name in columns:
        table.add_column(name.upper(), justify="right")
    for pool in status.pools:
        table.add_row(Text(printable(pool.name)), *(_count(pool, name) for name in columns))
    yield table
    listed = [node for node in status.nodes if node.is_down or node.reason]
    for node in listed[:_LISTED]:
        yield _node_line(node)
    if len(listed) > _LISTED:
        yield Text(f"  and {len(listed) - _LISTED} more: `slurmstack health` shows all")


def _node_line(node: ListedNode) -> Text:
    since = _seconds_since(node.since)
    who = f" by {printable(node.by)}" if node.by else ""
    by_whom = f"{who}{f' {ago(since)} ago' if since is not None else ''}"
    reason = f": {printable(node.reason)}" if node.reason else ""
    return Text.assemble("  ", node.name, " ", (node.state, "red" if node.is_down else ""), by_whom, reason)


def _facts(status: Status) -> Iterator[tuple[str, Text]]:
    if status.active_controller:
        yield "controller", Text(f"{status.active_controller} is active")
    if status.queue is not None:
        yield "queue", _queue(status.queue)
    if status.jail is not None:
        yield "jail", _jail(status.jail)
    yield from ((_BACKUPS[name], _proven(moment)) for name, moment in status.backups.items())
    held = defaultdict(list)
    for node in status.nodes:
        held[node.confinement].append(node.name)
    for confinement, names in held.items():
        if confinement:
            yield "jobs held to", Text(f"{printable(confinement)} ({_listed(names)})")
    if status.slurmdbd_answers is not None:
        logs = f"`{status.reached_by} logs -n {status.namespace} {ACCOUNTING_HOST} -c {ACCOUNTING}`"
        silent = Text(f"{SILENT_SLURMDBD}; see {logs}", style="red")
        yield "accounting", Text("slurmdbd answers") if status.slurmdbd_answers else silent
    last = " (the one last taken)" if status.slurmctld and status.configuration == "active" else ""
    yield "configuration", Text(f"{printable(status.configuration)}{last}")
    versions = {"Slurm": status.versions["slurm"], "images": ", ".join(status.versions["images"])}
    versions["slurmstack"] = status.versions["slurmstack"]
    yield "versions", Text("; ".join(f"{name} {printable(value)}" for name, value in versions.items() if value))
    yield "login address", Text(status.login_address or "none")
    if status.rest_address:
        yield "REST API", Text(status.rest_address)
    for part, why in status.unread.items():
        yield "could not read", Text(f"{part}: {printable(why)}", style="magenta")


def _queue(queue: Queue) -> Text:
    parts = [f"{queue.running} running", f"{queue.pending} pending"]
    parts += [f"{queue.other} ending or suspended"] if queue.other else []
    reasons = [f"{count} {printable(reason)}" for reason, count in queue.reasons.items()]
    waiting = f"; waiting for: {', '.join(reasons)}" if reasons else ""
    return Text(", ".join(parts) + waiting)


def _roll(roll: Roll) -> Text:
    """How far the new pods of a pool are."""
    text = f"new pods for pool {printable(roll.pool)}: {roll.old} of {roll.size} nodes wait until they are idle"
    if not roll.failing:
        return Text(text)
    return Text(f"{text}, and for new pods that are not ready, or not in Slurm: {_listed(roll.failing)}", style="red")


def _count(pool: Pool, column: str) -> Text:
    value = int(getattr(pool, column))
    bad = (column in {"drained", "down"} and value) or (column == "ready" and value < pool.wanted)
    return Text(str(value), style="red" if bad else "")


def _jail(jail: Jail) -> Text:
    if not jail.mounted:
        return Text(f"not mounted in {jail.seen_by}", style="red")
    version = f"populated with version {printable(jail.version)}" if jail.version else "not populated"
    homes = f", homes: {_free(*jail.homes)}" if jail.homes is not None else ""
    return Text(f"mounted in {jail.seen_by}, {_free(jail.size, jail.free)}, {version}{homes}")


def _proven(moment: str | None) -> Text:
    """How long ago a backup or a rehearsal has ended well."""
    if moment is None:
        return Text("none that ended well", style="red")
    since = _seconds_since(moment.removesuffix("Z"))
    return Text(printable(moment) if since is None else f"{ago(since)} ago")


def _free(size: int, free: int) -> str:
    return f"{free / _GIB:.1f} of {size / _GIB:.1f} GiB free ({100 * free // max(size, 1)} %)"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _seconds_since(moment: str) -> float | None:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(moment).replace(tzinfo=UTC)).total_seconds()
    except ValueError:
        return None
