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
from typing import Any

from cli.backup.jobs import statuses
from cli.change.owner import ROTATING
from cli.errors import Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl, complaint
from components.secrets import (
    DATABASE_PASSWORD_BYTES,
    JWT_KEY_BYTES,
    MUNGE_KEY_BYTES,
    PUBLIC_KEY_FILE,
    WORKER_HOST_KEY,
)
from images.common.files import HOST_KEY
from images.common.mariadb import PROBE, SOCKET, probe_options, statements
from local.report import Report, Step
from slurm.certificates import SEED_BYTES, ed25519_private_key_pem, ed25519_public_key
from slurm.names import GENERATED

POLL = 0.3
"""Seconds between two looks."""

SPREAD_SECONDS = 180.0
"""Until a file has reached all pods: kubelet takes a second where it is told, and a minute and a half by itself."""

RESTART_SECONDS = 300.0
"""Until a container runs again: kubelet waits 10 s, or longer, for one that has ended not long ago."""

AT_A_TIME = 16
"""Pods that are asked at the same time."""

_ROUNDS = 5
"""Pods that come meanwhile may have had the old key a moment ago."""

_TOUCHED = "slurmstack/key-touched"
"""Annotation of pods: a changed one makes kubelet look at their Secrets at once (0.2 s instead of 43 s, measured)."""

_END = "kill -TERM $(cat /proc/1/task/1/children)"

_MUNGED_COPY = "/run/munged/munge.key"
"""What a munged has read at its start."""

_AS_MYSQL = ("setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups")

_REPLACE_PROBE = (
    f"umask 077; cat >{PROBE}.new && chown --reference={PROBE} {PROBE}.new && "
    f"chmod --reference={PROBE} {PROBE}.new && mv {PROBE}.new {PROBE}"
)
"""What the readiness probe logs in with. It appears whole or not at all."""

_ALL_PODS = ("-l", "app.kubernetes.io/part-of=slurmstack")

_GOES_ON = "run this again: it goes on where this has ended"


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of the cluster, as components/secrets.py makes it."""

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

    def __init__(self, kubectl: Kubectl, namespace: str, name: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self.name = name
        self.key = KEYS[name]
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
                f"there is no generated {self.name} in the namespace {self._namespace} (Secret {GENERATED})",
                hint="`slurmstack up` makes the cluster; what Pulumi's engine or `render` made: "
                'docs/rotate-keys.md, "With Pulumi, or render"',
            )
        other = found[0]["metadata"].setdefault("annotations", {}).get(ROTATING)
        if other not in {None, self.name}:
            raise Failure(
                f"the rotation of {other} was not finished",
                hint=f"`slurmstack rotate {other}` first: it goes on with it",
            )
        return found[0], other is not None

    def begin(self) -> bool:
        """Make the new value, and write it where pods read it. Returns whether an earlier rotation goes on."""
        found, goes_on = self.read()
        if not goes_on:
            found["data"][self._generated] = _encoded(base64.b64encode(secrets.token_bytes(self.key.length)))
            found["metadata"]["annotations"][ROTATING] = self.name
            self._replace(found)
        self.value = base64.b64decode(found["data"][self._generated]).decode()
        self.write("secret", self.key.secret, {self.key.path.rpartition("/")[2]: _encoded(self.content)})
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
        """Raise Failure where one of these does not run, or does not answer: it would be left behind."""
        found = [
            place
            for pod in self._pods()
            if pod.get("status", {}).get("phase") == "Running"
            for place in self._places_in(pod)
            if place.container in containers
        ]
        answers = self._each(found, lambda place: self._run(place, "true") if place.id else 1)
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
        answers = self._each(places, lambda place: self._run(place, "sh", "-c", asked))
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
        self._each(places, lambda place: self.end(place, user=user, at=at))
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
            raise Failure(f"{place.pod}: {complaint(done)}", hint=_GOES_ON)
        return done.stdout

    def _run(self, place: Place, *command: str) -> int:
        return self._exec(place, *command).returncode

    def _exec(
        self, place: Place, *command: str, stdin: str | None = None, seconds: float = 30
    ) -> CompletedProcess[str]:
        where = ("exec", *([] if stdin is None else ["-i"]), "-n", self._namespace, place.pod, "-c", place.container)
        return self._kubectl.run(*where, "--", *command, stdin=stdin, check=False, seconds=seconds)

    def _each(self, places: Iterable[Place], work: Callable[[Place], int]) -> dict[Place, int]:
        these = list(places)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return dict(zip(these, pool.map(work, these), strict=True))

    def _pods(self) -> list[dict[str, Any]]:
        return self._kubectl.items("pod", "-n", self._namespace, *_ALL_PODS)

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


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _names(places: Iterable[Place]) -> str:
    names = sorted({place.pod for place in places})
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _refuse_late(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Failure(what, hint=_GOES_ON)


def _munge(rotation: Rotation, report: Report) -> str:
    """All munged's at one moment: two keys are never valid together."""
    pause = 0.0
    for _ in range(_ROUNDS):
        old = rotation.stale(_MUNGED_COPY)
        if not old:
            return f"pods did not understand each other for {pause:.1f} s"
        with report.step(f"Starting {len(old)} munged again, all at one moment") as step:
            pause += rotation.restart(old, "munge", step, together=True)
    raise Failure("some pods still have the old key", hint=_GOES_ON)


def _jwt(rotation: Rotation, report: Report) -> str:
    """Both have copied the key at their start."""
    with report.step("Starting slurmdbd again") as step:
        rotation.restart(_running(rotation, "slurmdbd"), "slurm", step)
    with report.step("Starting slurmctld again") as step:
        took = rotation.restart(_running(rotation, "slurmctld"), "root", step)
    return f"tokens of before are refused from now on; slurmctld was away for {took:.1f} s"


def _database_password(rotation: Rotation, report: Report) -> str:
    """The database first: slurmdbd goes on with the connections that it has, until it starts again."""
    password = rotation.content.decode()
    with report.step("Telling the database") as step:
        for place in _running(rotation, "mariadbd"):
            client = ("mariadb", "--no-defaults", f"--socket={SOCKET}", "--user=mysql")
            rotation.must(place, *_AS_MYSQL, *client, stdin=statements(password))  # a hash, and not the password
            rotation.must(place, "sh", "-c", _REPLACE_PROBE, stdin=probe_options(password))
        step.progress(0, 0, "its connections stay")
    with report.step("Starting slurmdbd again") as step:
        took = rotation.restart(rotation.places("slurmdbd"), "slurm", step)
    return f"slurmdbd was away for {took:.1f} s; slurmctld has kept what it had to record"


def _host_keys(rotation: Rotation, report: Report) -> str:
    """Sshd reads its key again when it is told to, and its sessions are processes of their own.

    The key that it has copied at its start lies on a root file system that nobody can write any more: the new one is
    bound over it, until the container starts anew and copies that.
    """
    key = ed25519_public_key(rotation.value)
    if rotation.name == WORKER_HOST_KEY:  # the cluster's own pods know it by a file
        rotation.write("configmap", WORKER_HOST_KEY, {PUBLIC_KEY_FILE: key})
        rotation.touch(*_ALL_PODS)
    with report.step("Telling sshd") as step:
        for number, place in enumerate(there := rotation.places()):
            step.progress(number, len(there), place.pod)
            rotation.must(place, "sh", "-c", f"mount --bind {rotation.key.path} {HOST_KEY} && kill -HUP 1")
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    fingerprint = _encoded(digest).rstrip("=")
    return f"sessions stay. The new key, for known_hosts:\n{key}\nSHA256:{fingerprint}"


def _running(rotation: Rotation, container: str) -> list[Place]:
    return [place for place in rotation.places(container) if place.id]


KEYS: Mapping[str, Key] = {
    "munge": Key(
        value="munge", length=MUNGE_KEY_BYTES, secret="munge-key", path="/secrets/munge/munge.key",  # noqa: S106
        content=base64.b64decode, containers=("munged",), carry_out=_munge,
        means="for some seconds pods do not understand each other: commands of Slurm wait or fail, running jobs go on",
    ),
    "jwt": Key(
        value="jwt", length=JWT_KEY_BYTES, secret="jwt-key", path="/secrets/jwt/jwt_hs256.key",  # noqa: S106
        content=base64.b64decode, containers=("slurmctld", "slurmdbd"), carry_out=_jwt,
        means="all tokens that were given out end at once, and their owners need new ones; slurmctld and slurmdbd "
        "start again, running jobs go on",
    ),
    "host-keys": Key(
        value="host-seed", length=SEED_BYTES, secret="ssh-host-keys",  # noqa: S106
        path="/secrets/ssh/ssh_host_ed25519_key", content=lambda value: ed25519_private_key_pem(value).encode(),
        containers=("sshd",), carry_out=_host_keys,
        means="SSH clients that know the old key refuse to connect until they are given the new one; sessions stay",
    ),
    WORKER_HOST_KEY: Key(
        value="worker-host-seed", length=SEED_BYTES, secret=WORKER_HOST_KEY,
        path="/secrets/ssh/ssh_host_ed25519_key", content=lambda value: ed25519_private_key_pem(value).encode(),
        containers=("worker-sshd",), carry_out=_host_keys,
        means="SSH clients outside of the cluster that know the workers' old key refuse to connect, and those on its "
        "nodes may for a minute; sessions stay",
    ),
    "database-password": Key(
        value="database", length=DATABASE_PASSWORD_BYTES, secret="database-password",  # noqa: S106
        path="/secrets/database/password", content=str.encode, containers=("mariadbd", "slurmdbd"),
        goes_on_with=("mariadbd",), carry_out=_database_password,
        means="slurmdbd starts again: no records for some seconds, which slurmctld keeps meanwhile; running jobs go on",
    ),
}  # fmt: skip
"""By the names that the command takes."""
