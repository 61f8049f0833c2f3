"""Reads what was written: logs of containers and events of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint
from cli.logs.lines import Line, nanoseconds, parse_log
from slurm.names import POOL_LABEL

AT_ONCE = 16
"""Calls of kubectl side by side: each mostly waits, and the API server lets few in at a time."""

_SECONDS = 60
"""For one log at most: the machine of a pod may be lost."""

_SSHD = "sshd"
_PROBE = re.compile(r"Connection (closed|reset) by \S+ port \d+")
"""What sshd writes each time somebody connects and says nothing, as the kubelet does every 10 s to see that it runs."""

Matches = Callable[[str], bool]
"""Whether a line with this text is wanted."""

Source = Callable[[], list[Line]]
"""Reads lines. Raises Failure."""


def is_probe(line: Line) -> bool:
    """Whether a line only says that somebody has looked whether sshd is there."""
    return line.place.endswith(f"/{_SSHD}") and _PROBE.fullmatch(line.text) is not None


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of a pod, also one that has ended or has not begun."""

    pod: str
    name: str
    component: str
    pool: str
    machine: str
    owners: tuple[str, ...]
    restarted: bool

    @property
    def place(self) -> str:
        """As people write it."""
        return f"{self.pod}/{self.name}"


@dataclass(kw_only=True)
class Found:
    """What was read, and what could not be."""

    lines: list[Line] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What was not read, each with its reason."""
    read: int = 0
    """Sources that have answered."""


def containers(pods: Iterable[dict[str, Any]]) -> list[Container]:
    """All containers of pods as Kubernetes has them, in the order in which they start."""
    return [found for pod in pods for found in _containers(pod)]


def _containers(pod: dict[str, Any]) -> list[Container]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    restarts = {state["name"]: state.get("restartCount", 0) for state in states}
    labels = metadata.get("labels", {})
    return [
        Container(
            pod=metadata["name"],
            name=container["name"],
            component=labels.get("app.kubernetes.io/component", "pod"),
            pool=labels.get(POOL_LABEL, ""),
            machine=spec.get("nodeName", ""),
            owners=tuple(owner["name"] for owner in metadata.get("ownerReferences", [])),
            restarted=restarts.get(container["name"], 0) > 0,
        )
        for container in (*spec.get("initContainers", []), *spec.get("containers", []))
    ]


def read_log(kubectl: Kubectl, namespace: str, container: Container, *options: str) -> str:
    """A container's log with the time of each line. `options` of `kubectl logs`, such as --previous. Raises Failure."""
    where = ("logs", "-n", namespace, container.pod, "-c", container.name, "--timestamps", *options)
    done = kubectl.run(*where, check=False, seconds=_SECONDS)
    if done.returncode != 0:
        raise Failure(complaint(done))
    return done.stdout


def log_sources(
    kubectl: Kubectl,
    namespace: str,
    wanted: Sequence[Container],
    *,
    since: datetime | None = None,
    matches: Matches = lambda _: True,
) -> dict[str, Source]:
    """The logs of containers, also those of before their last restart: the lines that match, but for sshd's probes."""
    options = [] if since is None else [f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}"]

    def read(container: Container, *more: str) -> list[Line]:
        printed = read_log(kubectl, namespace, container, *more, *options)
        lines = parse_log(printed, container.component, container.place)
        if printed.strip() and not lines:  # a complaint of the kubelet's comes in the place of the log
            raise Failure(printed.strip()[:200])
        return [line for line in lines if matches(line.text) and not is_probe(line)]

    now = {item.place: partial(read, item) for item in wanted}
    before = {
        f"{item.place}, before its restart": partial(read, item, "--previous") for item in wanted if item.restarted
    }
    return {**now, **before}


def events(
    kubectl: Kubectl, namespace: str, *options: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True
) -> list[Line]:
    """What Kubernetes tells of objects. Raises Failure."""
    found = kubectl.items("events", "-n", namespace, *options)
    return [line for item in found if wanted(item) and (line := _event_line(item)) is not None]


def _event_line(item: dict[str, Any]) -> Line | None:
    """An event at the time when it was seen last; None if it has none."""
    series = item.get("series") or {}
    seen = series.get("lastObservedTime") or item.get("lastTimestamp") or item.get("eventTime")
    at = nanoseconds(str(seen or item["metadata"].get("creationTimestamp")))
    if at is None:
        return None
    about, count = item["involvedObject"], series.get("count") or item.get("count") or 1
    often = f" ({count} times since {item.get('firstTimestamp') or item.get('eventTime')})" if count > 1 else ""
    text = f"{item.get('type', '')} {item.get('reason', '')}: {item.get('message', '')}{often}"
    return Line(at=at, component="event", place=f"{about.get('kind', '').lower()}/{about.get('name', '')}", text=text)


@contextmanager
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls of kubectl. After Ctrl-C those that wait for their turn do not begin any more."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def read_all(sources: dict[str, Source]) -> Found:
    """Read side by side. What fails is noted and stops nothing."""
    found = Found()
    with side_by_side() as pool:
        asked = {name: pool.submit(source) for name, source in sources.items()}
        for name, answer in asked.items():
            try:
                found.lines += answer.result()
                found.read += 1
            except Failure as failure:
                found.missing.append(f"{name}: {failure}")
    return found
