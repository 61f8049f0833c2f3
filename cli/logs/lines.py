"""What was written: logs of containers and events of Kubernetes as lines, in the order of time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import typer

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, component_of, labels_of
from cli.text import printable
from slurm.names import POOL_LABEL

_SECOND = 1_000_000_000
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")

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

    at: int
    """Nanoseconds since 1970. Of what is known to the second only, the last one of that second: so it comes after what
    is known better, as it does where lines are sorted as text."""
    component: str
    """`worker`, `controller`, ...; `event` and `sacct` for what is no log."""
    place: str
    """`POD/CONTAINER`, or what an event is about."""
    text: str

    @property
    def time(self) -> str:
        """In UTC, to the millisecond where that is known."""
        seconds, rest = divmod(self.at, _SECOND)
        known = "" if rest == _SECOND - 1 else f".{rest // 1_000_000:03d}"
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{known}Z"

    @property
    def source(self) -> str:
        """Who wrote it, in one word."""
        return f"{self.component}({self.place})"

    def __str__(self) -> str:
        return f"{self.time.ljust(24)} {self.source} {self.text}"

    def as_data(self) -> dict[str, Any]:
        """The line for scripts (docs/diagnose.md). CHANGELOG.md names keys that go."""
        return {"time": self.time, "component": self.component, "place": self.place, "text": self.text}


def nanoseconds(text: str) -> int | None:
    """A time as kubelet, Kubernetes and Slurm write it, all in UTC; None if it is none. datetime has no nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:  # the 30th of February
        return None
    at = to_the_second(whole.timestamp())
    return at - (_SECOND - 1) + int(match[2].ljust(9, "0")) if match[2] else at


def to_the_second(seconds: float) -> int:
    """A time since 1970 of which no more is known, as lines have it."""
    return int(seconds) * _SECOND + _SECOND - 1


def parse_log(printed: str, component: str, place: str) -> list[Line]:
    """What `kubectl logs --timestamps` printed. What has no time of its own belongs to the line before it."""
    found: list[Line] = []
    for line in printed.removesuffix("\n").split("\n"):
        stamp, _, text = line.partition(" ")
        at = nanoseconds(stamp)
        if at is not None:
            found.append(Line(at=at, component=component, place=place, text=text))
        elif found:
            found.append(replace(found[-1], text=line))
    return found


def in_order(lines: Iterable[Line], *, since: datetime | None = None) -> list[Line]:
    """The lines from a time on, each after those that were written before it."""
    first = 0 if since is None else int(since.timestamp() * 1000) * 1_000_000
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
        typer.echo(json.dumps(line.as_data()) if as_json else printable(str(line)))


# ---------------------------------------------------------------- where they come from

AT_ONCE = 16
"""Calls of kubectl side by side: each mostly waits, and the API server lets few in at a time."""

_SECONDS = 60
"""For one log at most: the machine of a pod may be lost."""

_PROBE = re.compile(r"Connection (closed|reset) by \S+ port \d+")
"""What sshd writes each time somebody connects and says nothing, as the kubelet does every 10 s to see that it runs."""

Source = Callable[[], list[Line]]
"""Reads lines. Raises Failure."""


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


def containers(pods: Iterable[dict[str, Any]]) -> Iterator[Container]:
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
                owners=tuple(owner["name"] for owner in metadata.get("ownerReferences", [])),
                restarted=any(restarts),
            )


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
    matches: Callable[[str], bool] = lambda _: True,
) -> dict[str, Source]:
    """The logs of containers, also those of before their last restart: the lines that match, but for sshd's probes."""
    options = [] if since is None else [f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}"]

    def read(container: Container, *more: str) -> list[Line]:
        printed = read_log(kubectl, namespace, container, *more, *options)
        lines = parse_log(printed, container.component, container.place)
        if printed.strip() and not lines:  # a complaint of the kubelet's comes in the place of the log
            raise Failure(printed.strip()[:200])
        return [line for line in lines if matches(line.text) and not is_probe(line)]

    before = [item for item in wanted if item.restarted]
    return {
        **{item.place: partial(read, item) for item in wanted},
        **{f"{item.place}, before its restart": partial(read, item, "--previous") for item in before},
    }


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
