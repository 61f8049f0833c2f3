"""Which lines are about what: all of them, those of a component, of a node or of a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.errors import USAGE, Failure
from cli.health.query import MOST_NAMES, refuse_no_namespace
from cli.kubectl.client import Kubectl
from cli.logs.jobs import Job, read_job, refuse_no_job
from cli.logs.naming import names_job, names_node
from cli.logs.sources import Container, Found, Source, containers, events, log_sources, read_all
from config.errors import nearest
from slurm.names import WORKER

_WATCHERS = ("slurmctld", "config-agent", "health-watch")
"""Containers whose programs speak of nodes."""

_OF_JOBS = ("slurmctld", "slurmdbd", "health-watch")
"""Containers whose programs speak of jobs, besides slurmd on the job's nodes."""

_MACHINES = "default"
"""Namespace of the events of machines, which are in none."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is looked for, and of which time."""

    component: str | None = None
    node: str | None = None
    job: str | None = None
    since: datetime | None = None
    tail: int | None = None
    """For the logs of all: more of each are not needed."""
    accounting: bool = True
    """Whether jobs are recorded."""


def chosen(name: str | None, there: Sequence[Container]) -> list[Container]:
    """The containers of this name: a component, a container, a pool or a pod; all for None. Raises Failure for none."""
    found = [item for item in there if name is None or name in _names(item)]
    if not found and name is not None:
        raise _unknown(name, there)
    return found


def _about_job(there: Sequence[Container], known: Job) -> list[Container]:
    """Where lines about a job are. Where nobody knows its nodes, on all."""
    where = known.nodes if known.lines else {item.pod for item in there if item.component == WORKER}
    return [item for item in there if item.name in _OF_JOBS or (item.name == "slurmd" and item.pod in where)]


def gather(kubectl: Kubectl, namespace: str, asked: Asked, now: datetime) -> Found:
    """Read all that is about it. What cannot be read is noted; raises Failure where that is everything."""
    found = Found()
    try:
        pods = kubectl.items("pod", "-n", namespace)
    except Failure as failure:
        found.missing.append(f"pods: {failure}")
        pods = []
    there = containers(pods)
    if not there:
        refuse_no_namespace(kubectl, namespace)
    if asked.job is not None:
        found.add(_of_job(kubectl, namespace, asked, there, now))
    elif asked.node is not None:
        found.add(_of_node(kubectl, namespace, asked, there))
    else:
        found.add(_of_component(kubectl, namespace, asked, there))
    if not found.read:
        raise Failure("nothing could be read:\n" + "\n".join(f"  {line}" for line in found.missing[:MOST_NAMES]))
    return found


def _of_component(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container]) -> Found:
    name = asked.component
    chosen = [item for item in there if name is None or name in _names(item)]
    about = _about(name, chosen) if name is not None else lambda _: True
    logs = log_sources(kubectl, namespace, chosen, since=asked.since, tail=asked.tail)
    found = read_all({**logs, "events": lambda: events(kubectl, namespace, about)})
    if not chosen and name is not None and there:
        if not found.lines:
            raise _unknown(name, there)
        found.missing.append(f"{name}: there is no such pod now")
    return found


def _names(container: Container) -> set[str]:
    """What a container is found by."""
    return {container.pod, container.name, container.component, container.pool}


def _about(name: str, chosen: Sequence[Container]) -> Callable[[dict[str, Any]], bool]:
    """Whether an event is about these containers: of their pods, of what made them, and of pods that they replaced."""
    objects = {item.pod for item in chosen} | {owner for item in chosen for owner in item.owners} | {name}
    places = {item.place for item in chosen}
    earlier = re.compile(rf"{re.escape(name)}-(\d+|[0-9a-f]{{8,10}}(-[a-z0-9]{{5}})?)")

    def about(event: dict[str, Any]) -> bool:
        of = event["involvedObject"]
        told = str(of.get("name", ""))
        container = re.fullmatch(r"spec\.\w+\{(.+)\}", of.get("fieldPath", ""))
        if container is not None and told in objects and told != name:
            return f"{told}/{container[1]}" in places
        return told in objects or earlier.fullmatch(told) is not None

    return about


def _of_node(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container]) -> Found:
    node = str(asked.node)
    own = [item for item in there if item.pod == node]
    workers = sorted({item.pod for item in there if item.component == WORKER})
    others = [item for item in there if item.name in _WATCHERS and item.pod != node]
    machine = next((item.machine for item in own), "")
    sources = log_sources(kubectl, namespace, own, since=asked.since, tail=asked.tail)
    sources["events"] = lambda: events(kubectl, namespace, lambda item: item["involvedObject"].get("name") == node)
    if machine:
        of_machine = f"--field-selector=involvedObject.kind=Node,involvedObject.name={machine}"
        sources[f"events of machine {machine}"] = lambda: events(kubectl, _MACHINES, lambda _: True, of_machine)
    with ThreadPoolExecutor(2) as pool:
        of_others = log_sources(kubectl, namespace, others, since=asked.since)
        naming = pool.submit(read_all, of_others, names_node(node))
        found = read_all(sources)
        found.add(naming.result())
    if not own and there:
        if not found.lines and workers:
            raise _unknown_name("node", node, workers)
        found.missing.append(f"{node}: there is no such pod now")
    return found


def _of_job(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container], now: datetime) -> Found:
    known = read_job(kubectl, namespace, str(asked.job), now, accounting=asked.accounting)
    refuse_no_job(str(asked.job), known)
    gone = known.nodes - {item.pod for item in there} if there else set()
    wanted = _about_job(there, known)
    since = asked.since or known.begin
    sources: dict[str, Source] = log_sources(kubectl, namespace, wanted, since=since)
    found = read_all(sources, names_job(known.ids))
    found.lines += known.lines
    found.read += bool(known.lines)
    found.missing += [*known.missing, *(f"{node}: there is no such pod now" for node in sorted(gone))]
    return found


def _unknown(name: str, there: Sequence[Container]) -> Failure:
    names = {word for item in there for word in (item.component, item.name, item.pool) if word}
    return _unknown_name("component, container, pool or pod", name, sorted(names), [item.pod for item in there])


def _unknown_name(what: str, name: str, names: Sequence[str], more: Sequence[str] = ()) -> Failure:
    few = names if not more else [*names, "or the name of a pod"]
    listed = ", ".join(few[: 3 * MOST_NAMES]) + (" ..." if len(few) > 3 * MOST_NAMES else "")
    guess = nearest(name, [*names, *more])
    return Failure(
        f"there is no {what} {name!r}; there are: {listed}", hint=f"did you mean {guess}?" if guess else "", code=USAGE
    )
