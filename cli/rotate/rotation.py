"""Rotation of keys: another key into the cluster's Secrets, and those who read the old one start again.

A rotation's state is in the cluster: cut short, the next one goes on. The annotation ROTATING and the new value are
written into the Secret of all generated values, at once; the Secret that pods read is made from it; kubelet brings that
into their files; whoever reads it only at its start is started again; the annotation goes. No `up` is made meanwhile.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any, TypeVar

from cli.change.owner import ROTATING
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, complaint
from cli.kubectl.jobs import statuses
from local.report import Report, Step
from slurm.names import GENERATED

POLL = 0.3
"""Seconds between two looks."""

SPREAD_SECONDS = 180.0
"""Until a file has reached all pods: kubelet takes a second where it is told, and a minute and a half by itself."""

RESTART_SECONDS = 300.0
"""Until a container runs again: kubelet waits 10 s, or longer, for one that has ended not long ago."""

AT_A_TIME = 16
"""Pods that are asked at the same time."""

_TOUCHED = "slurmstack/key-touched"
"""Annotation of pods: a changed one makes kubelet look at their Secrets at once (0.2 s instead of 43 s, measured)."""

_END = "kill -TERM $(cat /proc/1/task/1/children)"

ALL_PODS = ("-l", "app.kubernetes.io/part-of=slurmstack")

GOES_ON = "run this again: it goes on where this has ended"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of the cluster, as components/secrets.py makes it."""

    name: str
    """As the command takes it."""
    value: str
    """End of the name of its generated value."""
    length: int
    """Bytes of that."""
    secret: str
    path: str
    """Where containers have it; the last part is the file's name in the Secret, too."""
    content: Callable[[str], bytes]
    """The file, from the value in Base64."""
    means: str
    """What people should know before it is rotated, as a sentence."""
    containers: tuple[str, ...]
    """Those that read it."""
    goes_on_with: tuple[str, ...] = ()
    """Those that must answer when a rotation goes on, if not all: the others may not run for want of the key."""
    carry_out: Callable[[Rotation, Report], str]
    """Make everybody use the new file, which is in the Secret. Returns what was done, for people."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A container that runs."""

    pod: str
    container: str
    id: str
    """Of this run of it; empty where it has ended, and kubelet waits before it starts it again."""
    ready: bool


class Rotation:
    """One key of one cluster that gets another value."""

    def __init__(self, kubectl: Kubectl, namespace: str, key: Key) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self.key = key
        self._generated = f"{namespace}-secrets-{self.key.value}"
        self.value = ""
        """What the new file is made from, in Base64."""

    @property
    def content(self) -> bytes:
        """The new file."""
        return self.key.content(self.value)

    @property
    def digest(self) -> str:
        """SHA-256 of the new file, by which pods are asked whether they have it."""
        return hashlib.sha256(self.content).hexdigest()

    # In the Secrets

    def read(self) -> tuple[dict[str, Any], bool]:
        """The Secret of all values, and whether an earlier rotation of this key was not finished.

        Raises Failure where this key cannot be rotated, or the rotation of another was not finished.
        """
        found = self._kubectl.items("secret", GENERATED, "-n", self._namespace)
        if not found or self._generated not in found[0].get("data", {}):
            raise Failure(
                f"there is no generated {self.key.name} in the namespace {self._namespace} (Secret {GENERATED})",
                hint="`slurmstack up` makes the cluster; what Pulumi's engine or `render` made: "
                'docs/rotate-keys.md, "With Pulumi, or render"',
            )
        other = found[0]["metadata"].setdefault("annotations", {}).get(ROTATING)
        if other not in {None, self.key.name}:
            raise Failure(
                f"the rotation of {other} was not finished",
                hint=f"`slurmstack rotate {other}` first: it goes on with it",
            )
        return found[0], other is not None

    def begin(self) -> bool:
        """Make the new value, and write it where pods read it. Returns whether an earlier rotation goes on."""
        found, goes_on = self.read()
        if not goes_on:
            found["data"][self._generated] = encoded(base64.b64encode(secrets.token_bytes(self.key.length)))
            found["metadata"]["annotations"][ROTATING] = self.key.name
            self._replace(found)
        self.value = base64.b64decode(found["data"][self._generated]).decode()
        self.write("secret", self.key.secret, {self.key.path.rpartition("/")[2]: encoded(self.content)})
        return goes_on

    def write(self, kind: str, name: str, data: Mapping[str, str]) -> None:
        """Change these files of a Secret, in Base64, or of a ConfigMap."""
        self._kubectl.run(
            "patch", kind, name, "-n", self._namespace, "--type=merge", "--patch-file=/dev/stdin",
            f"--field-manager={FIELD_MANAGER}", stdin=json.dumps({"data": data}),
        )  # fmt: skip

    def finish(self) -> None:
        """All have the new key."""
        found, _ = self.read()
        found["metadata"]["annotations"].pop(ROTATING, None)
        self._replace(found)

    def _replace(self, secret: dict[str, Any]) -> None:
        """By its version: whoever has changed it meanwhile is not overwritten."""
        secret["metadata"].pop("managedFields", None)
        self._kubectl.run("replace", "-f", "-", f"--field-manager={FIELD_MANAGER}", stdin=json.dumps(secret))

    # In the pods

    def places(self, container: str = "") -> list[Place]:
        """The containers with the key that run now; or those of one name, also where it does not run."""
        return [
            place
            for pod in self._pods()
            for place in self._places_in(pod)
            if (place.container == container if container else place.id)
        ]

    def refuse_missing(self, containers: Collection[str]) -> None:
        """Raise Failure where one of these does not run, or does not answer, or leaves: it would be left behind."""
        running = [pod for pod in self._pods() if pod.get("status", {}).get("phase") == "Running"]
        found = [place for pod in running for place in self._places_in(pod) if place.container in containers]
        going = {pod["metadata"]["name"] for pod in running if "deletionTimestamp" in pod["metadata"]}
        if leaving := sorted(going & {place.pod for place in found}):  # kubelet changes no file of theirs any more
            raise Failure(
                f"these pods are leaving, and get no new key: {', '.join(leaving[:8])}",
                hint="this has touched nothing. Run it again when the jobs on them have ended, or cancel these",
            )
        answers = self.each(found, lambda place: self._run(place, "true") if place.id else 1)
        if silent := sorted({place.pod for place in found if answers[place] != 0}):
            raise Failure(
                f"these pods do not run, or do not answer: {', '.join(silent[:8])}",
                hint="this has touched nothing. `slurmstack status` and `slurmstack doctor` say what is wrong; wait "
                "until all pods run, or delete those whose machine is lost",
            )

    def stale(self, path: str) -> list[Place]:
        """Those whose file is another one, or who do not answer."""
        places = self.places()
        asked = f'[ "$(sha256sum <{path})" = "{self.digest}  -" ]'
        answers = self.each(places, lambda place: self._run(place, "sh", "-c", asked))
        return [place for place in places if answers[place] != 0]

    def spread(self, step: Step) -> None:
        """Wait until the Secret's new file has reached all of them."""
        deadline = time.monotonic() + SPREAD_SECONDS
        touched: set[str] = set()
        while stale := self.stale(self.key.path):
            if new := {place.pod for place in stale} - touched:
                self.touch(*sorted(new))
                touched |= new
            step.progress(0, 0, _names(stale))
            _refuse_late(deadline, f"the new key has not reached {_names(stale)}")
            time.sleep(POLL)

    def touch(self, *which: str) -> None:
        """Have kubelet look at the files of these pods at once."""
        annotation = (f"{_TOUCHED}={time.time():.0f}", "--overwrite", f"--field-manager={FIELD_MANAGER}")
        self._kubectl.run("annotate", "pod", *which, "-n", self._namespace, *annotation, check=False)

    def restart(self, places: Collection[Place], user: str, step: Step, *, together: bool = False) -> float:
        """End the first process of containers, and wait until they run again and are ready. Seconds of that.

        `together`: at one moment, by the clocks of their machines, however long it takes to tell them.
        """
        lead, at = 0.0, 0
        if together and places:
            lead = 2 + len(places) / AT_A_TIME
            at = int(self.must(next(iter(places)), "date", "+%s")) + int(lead) + 1
        begun = time.monotonic() + lead
        self.each(places, lambda place: self.end(place, user=user, at=at))
        deadline = time.monotonic() + RESTART_SECONDS
        while left := self._not_again(places):
            step.progress(0, 0, _names(left))
            _refuse_late(deadline, f"{_names(left)} does not run again")
            time.sleep(POLL)
        return max(0.0, time.monotonic() - begun)

    def _not_again(self, ended: Iterable[Place]) -> list[Place]:
        """Those that do not run again. One whose pod has left is waited for by nobody."""
        pods = self._pods()
        there = {pod["metadata"]["name"] for pod in pods}
        now = {(place.pod, place.container): place for pod in pods for place in self._places_in(pod)}
        left = []
        for place in ended:
            new = now.get((place.pod, place.container))
            again = new is not None and new.id not in {"", place.id} and new.ready
            if not again and (place.pod in there or not place.id):
                left.append(place)
        return left

    def end(self, place: Place, *, user: str, at: int) -> int:
        """As the first process's user: root may end no process of others in most containers. What waits is left to it.

        The container's very first one is only that process's parent, and ends with it.
        """
        if not place.id:  # a new pod starts at once
            arguments = ("delete", "pod", place.pod, "-n", self._namespace, "--wait=false", "--ignore-not-found")
            return self._kubectl.run(*arguments, check=False).returncode
        wait = f"while [ $(date +%s) -lt {at} ]; do sleep 0.05; done"
        kill = f"exec setpriv --reuid={user} --regid={user} --clear-groups sh -c '{_END}'"
        return self._run(place, "sh", "-c", 'setsid sh -c "$0" >/dev/null 2>&1 </dev/null &', f"{wait}; {kill}")

    def must(self, place: Place, *command: str, stdin: str = "") -> str:
        """Run a command in a container. Returns what it prints. Raises Failure with its own words where it fails."""
        done = self._exec(place, *command, stdin=stdin, seconds=60)
        if done.returncode != 0:
            raise Failure(f"{place.pod}: {complaint(done)}", hint=GOES_ON)
        return done.stdout

    def _run(self, place: Place, *command: str) -> int:
        return self._exec(place, *command).returncode

    def _exec(
        self, place: Place, *command: str, stdin: str | None = None, seconds: float = 30
    ) -> CompletedProcess[str]:
        where = ("exec", *([] if stdin is None else ["-i"]), "-n", self._namespace, place.pod, "-c", place.container)
        return self._kubectl.run(*where, "--", *command, stdin=stdin, check=False, seconds=seconds)

    def each(self, places: Iterable[Place], work: Callable[[Place], T]) -> dict[Place, T]:
        """Do the same with all of them, with some at a time. What that raises is raised when all are through."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            begun = {place: pool.submit(work, place) for place in places}
        return {place: done.result() for place, done in begun.items()}

    def _pods(self) -> list[dict[str, Any]]:
        return self._kubectl.items("pod", "-n", self._namespace, *ALL_PODS)

    def _places_in(self, pod: Mapping[str, Any]) -> list[Place]:
        return [
            Place(
                pod=str(pod["metadata"]["name"]),
                container=str(item["name"]),
                id=str(item.get("containerID", "")) if "running" in item.get("state", {}) else "",
                ready=bool(item.get("ready")),
            )
            for item in statuses(pod)
            if item["name"] in self.key.containers
        ]


def encoded(content: bytes) -> str:
    """In Base64."""
    return base64.b64encode(content).decode()


def _names(places: Iterable[Place]) -> str:
    names = sorted({place.pod for place in places})
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _refuse_late(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Failure(what, hint=GOES_ON)
