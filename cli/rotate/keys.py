"""The keys that can be rotated, and one rotation's state, which is in the cluster: cut short, the next one goes on.

What is done, in this order: the annotation ROTATING and the new value are written into the Secret of all generated
values, at once; the Secret that pods read is made from it; kubelet brings that into their files; whoever reads it only
at its start is started again; the annotation goes. No `up` is made while it is there. All steps can be done again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cli.change.owner import ROTATING
from cli.errors import USAGE, Failure
from cli.kubectl.client import FIELD_MANAGER, Kubectl
from cli.rotate.pods import Place, Places
from components.secrets import DATABASE_PASSWORD_BYTES, JWT_KEY_BYTES, MUNGE_KEY_BYTES
from config.cluster import ClusterConfig
from images.common.files import HOST_KEY
from images.common.mariadb import PROBE, SOCKET, probe_options, statements
from local.report import Report
from slurm.certificates import SEED_BYTES, ed25519_private_key_pem, ed25519_public_key
from slurm.names import GENERATED


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
    file: str
    path: str
    """Where containers have it."""
    content: Callable[[str], bytes]
    """The file, from the value in Base64."""
    means: str
    """What people should know before it is rotated, as a sentence."""
    containers: tuple[str, ...]
    """Those that read it."""
    goes_on_with: tuple[str, ...] = ()
    """Those that must answer when a rotation goes on, if not all: the others may not run for want of the key."""
    carry_out: Callable[[Rotation, Places, Report], str]
    """Make everybody use the new file, which is in the Secret. Returns what was done, for people."""


class Rotation:
    """One key of one cluster that gets another value."""

    def __init__(self, kubectl: Kubectl, namespace: str, key: Key) -> None:
        self._kubectl = kubectl
        self.namespace = namespace
        self.key = key
        self._name = f"{namespace}-secrets-{key.value}"
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

    def refuse(self) -> None:
        """Raise Failure where this key cannot be rotated, or another rotation was not finished."""
        self._read()

    @property
    def is_begun(self) -> bool:
        """Whether an earlier one of this key was not finished."""
        return ROTATING in (self._read()["metadata"].get("annotations") or {})

    def begin(self) -> bool:
        """Make the new value, and write it where pods read it. Returns whether an earlier rotation goes on."""
        found = self._read()
        annotations = found["metadata"].setdefault("annotations", {})
        goes_on = ROTATING in annotations
        if not goes_on:
            found["data"][self._name] = _encoded(base64.b64encode(secrets.token_bytes(self.key.length)))
            annotations[ROTATING] = self.key.name
            self._replace(found)
        self.value = base64.b64decode(found["data"][self._name]).decode()
        change = {"data": {self.key.file: _encoded(self.content)}}
        self._kubectl.run(
            "patch", "secret", self.key.secret, "-n", self.namespace, "--type=merge", "--patch-file=/dev/stdin",
            f"--field-manager={FIELD_MANAGER}", stdin=json.dumps(change),
        )  # fmt: skip
        return goes_on

    def finish(self) -> None:
        """All have the new key."""
        found = self._read()
        found["metadata"].get("annotations", {}).pop(ROTATING, None)
        self._replace(found)

    def _read(self) -> dict[str, Any]:
        found = self._kubectl.items("secret", GENERATED, "-n", self.namespace)
        if not found or self._name not in found[0].get("data", {}):
            raise Failure(
                f"there is no generated {self.key.name} in the namespace {self.namespace} (Secret {GENERATED})",
                hint="`slurmstack up` makes the cluster; what Pulumi's engine or `render` made: "
                'docs/rotate-keys.md, "With Pulumi, or render"',
            )
        other = (found[0]["metadata"].get("annotations") or {}).get(ROTATING)
        if other not in {None, self.key.name}:
            raise Failure(
                f"the rotation of {other} was not finished",
                hint=f"`slurmstack rotate {other}` first: it goes on with it",
            )
        return found[0]

    def _replace(self, secret: dict[str, Any]) -> None:
        """By its version: whoever has changed it meanwhile is not overwritten."""
        secret["metadata"].pop("managedFields", None)
        self._kubectl.run("replace", "-f", "-", f"--field-manager={FIELD_MANAGER}", stdin=json.dumps(secret))


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


_MUNGED_COPY = "/run/munged/munge.key"
"""What a munged has read at its start."""

_ROUNDS = 5
"""Pods that come meanwhile may have had the old key a moment ago."""


def rotate(kubectl: Kubectl, config: ClusterConfig, rotation: Rotation, report: Report) -> str:
    """Carry a rotation out, or go on with one that was cut short. Returns what was done, for people.

    Raises Failure, with nothing touched, where a pod that needs the key does not answer.
    """
    key = rotation.key
    refuse(config, rotation)
    places = Places(kubectl, rotation.namespace, key.containers)
    needed = (rotation.is_begun and key.goes_on_with) or key.containers
    Places(kubectl, rotation.namespace, needed).refuse_missing()
    if rotation.begin():
        report.info("an earlier rotation was not finished: going on with its key")
    with report.step("Waiting until all pods have the new file") as step:
        places.spread(key.path, rotation.digest, step)
    told = key.carry_out(rotation, places, report)
    rotation.finish()
    return told


def refuse(config: ClusterConfig, rotation: Rotation) -> None:
    """Raise Failure where there is nothing to rotate."""
    if rotation.key.name == "database-password" and config.accounting.own_database is None:
        raise Failure(
            "the cluster has no database of its own",
            hint="an external one is yours: give its user another password, write it into the Secret that "
            "accounting.database.external.password names, and `kubectl delete pod slurmdbd-0`",
            code=USAGE,
        )
    rotation.refuse()


def _munge(rotation: Rotation, places: Places, report: Report) -> str:
    """All munged's at one moment: two keys are never valid together."""
    pause = 0.0
    for _ in range(_ROUNDS):
        old = places.stale(_MUNGED_COPY, rotation.digest)
        if not old:
            return f"pods did not understand each other for {pause:.1f} s"
        with report.step(f"Starting {len(old)} munged again, all at one moment") as step:
            pause += places.restart(old, "munge", step, together=True)
    raise Failure("some pods still have the old key", hint="run this again: it goes on")


def _jwt(_rotation: Rotation, places: Places, report: Report) -> str:
    """Both have copied the key at their start."""
    with report.step("Starting slurmdbd again") as step:
        places.restart(_of(places, "slurmdbd"), "slurm", step)
    with report.step("Starting slurmctld again") as step:
        took = places.restart(_of(places, "slurmctld"), "root", step)
    return f"tokens of before are refused from now on; slurmctld was away for {took:.1f} s"


def _database_password(rotation: Rotation, places: Places, report: Report) -> str:
    """The database first: slurmdbd goes on with the connections that it has, until it starts again."""
    password = rotation.content.decode()
    with report.step("Telling the database") as step:
        for place in _of(places, "mariadbd"):
            client = ("mariadb", "--no-defaults", f"--socket={SOCKET}", "--user=mysql")
            places.must(place, *_AS_MYSQL, *client, stdin=statements(password))  # a hash, and not the password
            places.must(place, "sh", "-c", _REPLACE_PROBE, stdin=probe_options(password))
        step.progress(0, 0, "its connections stay")
    with report.step("Starting slurmdbd again") as step:
        took = places.restart([*_of(places, "slurmdbd"), *places.ended("slurmdbd")], "slurm", step)
    return f"slurmdbd was away for {took:.1f} s; slurmctld has kept what it had to record"


def _host_keys(rotation: Rotation, places: Places, report: Report) -> str:
    """Sshd reads its key again when it is told to, and its sessions are processes of their own.

    The key that it has copied at its start lies on a root file system that nobody can write any more: the new one is
    bound over it, until the container starts anew and copies that.
    """
    with report.step("Telling sshd") as step:
        for number, place in enumerate(login := places.running()):
            step.progress(number, len(login), place.pod)
            places.must(place, "sh", "-c", f"mount --bind {rotation.key.path} {HOST_KEY} && kill -HUP 1")
    key = ed25519_public_key(rotation.value)
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    fingerprint = base64.b64encode(digest).decode().rstrip("=")
    return f"sessions stay. The new key, for known_hosts:\n{key}\nSHA256:{fingerprint}"


_AS_MYSQL = ("setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups")

_REPLACE_PROBE = (
    f"umask 077; cat >{PROBE}.new && chown --reference={PROBE} {PROBE}.new && "
    f"chmod --reference={PROBE} {PROBE}.new && mv {PROBE}.new {PROBE}"
)
"""What the readiness probe logs in with. It appears whole or not at all."""


def _of(places: Places, container: str) -> list[Place]:
    return [place for place in places.running() if place.container == container]


KEYS = {
    key.name: key
    for key in (
        Key(
            name="munge", value="munge", length=MUNGE_KEY_BYTES, secret="munge-key", file="munge.key",  # noqa: S106
            path="/secrets/munge/munge.key", content=base64.b64decode, containers=("munged",), carry_out=_munge,
            means="for some seconds pods do not understand each other: commands of Slurm wait or fail, running jobs "
            "go on",
        ),
        Key(
            name="jwt", value="jwt", length=JWT_KEY_BYTES, secret="jwt-key", file="jwt_hs256.key",  # noqa: S106
            path="/secrets/jwt/jwt_hs256.key", content=base64.b64decode, containers=("slurmctld", "slurmdbd"),
            carry_out=_jwt,
            means="all tokens that were given out end at once, and their owners need new ones; slurmctld and slurmdbd "
            "start again, running jobs go on",
        ),
        Key(
            name="host-keys", value="host-seed", length=SEED_BYTES, secret="ssh-host-keys",  # noqa: S106
            file="ssh_host_ed25519_key", path="/secrets/ssh/ssh_host_ed25519_key",
            content=lambda value: ed25519_private_key_pem(value).encode(), containers=("sshd",), carry_out=_host_keys,
            means="SSH clients that know the old key refuse to connect until they are given the new one; sessions stay",
        ),
        Key(
            name="database-password", value="database", length=DATABASE_PASSWORD_BYTES, secret="database-password",  # noqa: S106
            file="password", path="/secrets/database/password", content=str.encode,
            containers=("mariadbd", "slurmdbd"), goes_on_with=("mariadbd",), carry_out=_database_password,
            means="slurmdbd starts again: no records for some seconds, which slurmctld keeps meanwhile; running jobs "
            "go on",
        ),
    )
}  # fmt: skip
"""By the names that the command takes."""
