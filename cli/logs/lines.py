"""What containers wrote, as lines in the order of time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import typer

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, component_of, labels_of
from cli.text import printable
from slurm.names import POOL_LABEL

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(?:Z|\+00:00)?")

_JOB = re.compile(
    r"""(?ix)
    (?: (?<! [a-z0-9] ) (?: job | step ) [ _]? (?: id )? \\?["']? [ ]* (?: [:=\#] [ ]* )? | \[ (?= \d+\. ) )
    ( \d+ )                                              # of the job, or of the array that it belongs to
    (?: [_+] (?: ( \d+ ) | \* | \[ [\d,%-]+ \] ) )?      # of the task; all that wait together are 5_*
    (?: \( ( \d+ ) \) )?                                 # of the task as a job: JobId=5_3(7)
    (?! \w )"""
)
"""As slurmctld, slurmd, slurmstepd and our own programs write it: `JobId=5_3(7)`, `StepId=5.0`, `[5.batch]`,
`Launching batch job 5`, `prolog job 5: ...`."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one of many wrote."""

    at: str
    """In UTC, as it is sorted: `2026-11-25T16:27:52.563535123`, and behind it `2026-11-25T16:27:52Z`, which is known to
    the second only."""
    component: str
    """`worker`, `controller`, ...; `sacct` and `squeue` for what is no log."""
    place: str
    """`POD/CONTAINER`, or `job/ID`."""
    text: str

    @property
    def time(self) -> str:
        """In UTC, to the millisecond where that is known."""
        return self.at if self.at.endswith("Z") else f"{self.at[:23].ljust(23, '0')}Z"

    def __str__(self) -> str:
        return f"{self.time.ljust(24)} {self.component}({self.place}) {self.text}"


def parse_log(printed: str, component: str, place: str) -> list[Line]:
    """What `kubectl logs --timestamps` printed. What has no time of its own belongs to the line before it."""
    found: list[Line] = []
    for line in printed.removesuffix("\n").split("\n"):
        stamp, _, text = line.partition(" ")
        if time := _TIME.fullmatch(stamp):
            found.append(Line(at=f"{time[1]}{time[2] or 'Z'}", component=component, place=place, text=text))
        elif found:
            found.append(replace(found[-1], text=line))
    return found


def in_order(lines: Iterable[Line], *, since: datetime | None = None) -> list[Line]:
    """The lines from a time on, each after those that were written before it."""
    first = "" if since is None else since.isoformat(timespec="milliseconds")[:23]
    # Lines of one moment stay as their source has them.
    return sorted((line for line in lines if line.at >= first), key=lambda line: line.at)


def names_job(wanted: Collection[str]) -> Callable[[str], bool]:
    """Whether a text names one of these jobs: numbers, or ARRAY_TASK. An array's number stands for all its tasks."""
    ids = frozenset(wanted)

    def matches(text: str) -> bool:
        named = (match.groups("") for match in _JOB.finditer(text))
        return any(not ids.isdisjoint({job, f"{job}_{task}", as_job}) for job, task, as_job in named)

    return matches


def print_lines(lines: Sequence[Line], *, as_json: bool) -> None:
    """One a line. Control characters are blanks, so that no log can move the cursor; JSON writes them as escapes."""
    for line in lines:
        # For scripts (docs/diagnose.md). CHANGELOG.md names keys that go.
        data = {"time": line.time, "component": line.component, "place": line.place, "text": line.text}
        typer.echo(json.dumps(data) if as_json else printable(str(line)))


# ---------------------------------------------------------------- where they come from

AT_ONCE = 16
"""Calls of kubectl side by side: each mostly waits, and the API server lets few in at a time."""

LISTED = 12
"""Of what could not be read, and of names: there may be a thousand workers."""

_SECONDS = 60
"""For one log at most: the machine of a pod may be lost."""

_PROBE = re.compile(r"Connection (closed|reset) by \S+ port \d+")
"""What sshd writes each time somebody connects and says nothing, as the kubelet does every 10 s to see that it runs."""


def is_probe(line: Line) -> bool:
    """Whether a line only says that somebody has looked whether sshd is there."""
    return line.place.endswith("/sshd") and _PROBE.fullmatch(line.text) is not None


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of a pod, also one that has ended or has not begun."""

    pod: str
    name: str
    component: str
    pool: str
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
    """Logs that could be read."""


def containers(pods: Iterable[Mapping[str, Any]]) -> Iterator[Container]:
    """All containers of pods as Kubernetes has them, in the order in which they start."""
    for pod in pods:
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        states: list[dict[str, Any]] = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
            restarts = [one.get("restartCount", 0) for one in states if one["name"] == container["name"]]
            yield Container(
                pod=metadata["name"],
                name=container["name"],
                component=component_of(pod) or "pod",
                pool=labels_of(pod).get(POOL_LABEL, ""),
                restarted=any(restarts),
            )


def read_log(kubectl: Kubectl, namespace: str, container: Container, *options: str, seconds: float = _SECONDS) -> str:
    """A container's log with the time of each line. `options` of `kubectl logs`, such as --previous. Raises Failure."""
    where = ("logs", "-n", namespace, container.pod, "-c", container.name, "--timestamps", *options)
    done = kubectl.run(*where, check=False, seconds=seconds)
    if done.returncode != 0:
        raise Failure(complaint(done))
    return done.stdout


@contextmanager
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls of kubectl. After Ctrl-C those that wait for their turn do not begin any more."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def read_logs(
    kubectl: Kubectl,
    namespace: str,
    wanted: Iterable[Container],
    *,
    since: datetime | None,
    matches: Callable[[str], bool] = lambda _: True,
    seconds: float = _SECONDS,
) -> Found:
    """The lines that match, but for sshd's probes, also those of before a restart. What fails stops nothing."""
    options = [] if since is None else [f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}"]

    def read(container: Container, *more: str) -> list[Line]:
        printed = read_log(kubectl, namespace, container, *more, *options, seconds=seconds)
        lines = parse_log(printed, container.component, container.place)
        if printed.strip() and not lines:  # a complaint of the kubelet's comes in the place of the log
            raise Failure(printed.strip()[:200])
        return [line for line in lines if matches(line.text) and not is_probe(line)]

    found = Found()
    with side_by_side() as pool:
        asked: dict[str, Future[list[Line]]] = {}
        for item in wanted:
            asked[item.place] = pool.submit(read, item)
            if item.restarted:
                asked[f"{item.place}, before its restart"] = pool.submit(read, item, "--previous")
        for name, answer in asked.items():
            try:
                found.lines += answer.result()
                found.read += 1
            except Failure as failure:
                found.missing.append(f"{name}: {failure}")
    return found
