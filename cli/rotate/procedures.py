"""How each key is rotated: who reads it, and who starts again in which order."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.rotate.keys import Rotation
from cli.rotate.pods import Place, Places
from config.cluster import ClusterConfig
from images.common.files import HOST_KEY
from images.common.mariadb import PROBE, SOCKET, probe_options, statements
from local.report import Report
from slurm.hostkeys import ed25519_public_key

_MUNGED_COPY = "/run/munged/munge.key"
"""What a munged has read at its start."""

_ROUNDS = 5
"""Pods that come meanwhile may have had the old key a moment ago."""


@dataclass(frozen=True, kw_only=True)
class Procedure:
    """The rotation of one key."""

    means: str
    """What people should know before, as a sentence."""
    containers: tuple[str, ...]
    """Those that read it."""
    goes_on_with: tuple[str, ...] = ()
    """Those that must answer when it goes on, if not all: the others may not run for want of the key."""
    carry_out: Callable[[Rotation, Places, Report], str]
    """Make everybody use the new file, which is in the Secret. Returns what was done, for people."""


def rotate(kubectl: Kubectl, config: ClusterConfig, rotation: Rotation, report: Report, after: str = "") -> str:
    """Carry a rotation out, or go on with one that was cut short. Returns what was done, for people.

    `after`: who was waited for.

    Raises Failure, with nothing touched, where a pod that needs the key does not answer.
    """
    procedure = PROCEDURES[rotation.key.name]
    refuse(config, rotation)
    places = Places(kubectl, rotation.namespace, procedure.containers)
    needed = (rotation.is_begun and procedure.goes_on_with) or procedure.containers
    Places(kubectl, rotation.namespace, needed).refuse_missing()
    if rotation.begin(after):
        report.info("an earlier rotation was not finished: going on with its key")
    with report.step("Waiting until all pods have the new file") as step:
        places.spread(rotation.key.path, rotation.digest, step)
    told = procedure.carry_out(rotation, places, report)
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
    """Of two controllers first the one that stands by, so that it can take over when the active one ends in order.

    There the first process is root's, which starts slurmctld. Whoever is active afterwards has begun with the new key.
    """
    with report.step("Starting slurmdbd again") as step:
        places.restart(_of(places, "slurmdbd"), "slurm", step)
    took = 0.0
    controllers = sorted(_of(places, "slurmctld"), key=lambda place: place.active)
    for place in controllers:
        with report.step(f"Starting slurmctld of {place.pod} again") as step:
            took = places.restart([place], "root", step)
    away = f"was away for {took:.1f} s" if len(controllers) < 2 else "goes on in the other pod"
    return f"tokens of before are refused from now on; slurmctld {away}"


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


PROCEDURES = {
    "munge": Procedure(
        means="for some seconds pods do not understand each other: commands of Slurm wait or fail, running jobs go on",
        containers=("munged",),
        carry_out=_munge,
    ),
    "jwt": Procedure(
        means="all tokens that were given out end at once, and their owners need new ones; slurmctld and slurmdbd "
        "start again, running jobs go on",
        containers=("slurmctld", "slurmdbd"),
        carry_out=_jwt,
    ),
    "host-keys": Procedure(
        means="SSH clients that know the old key refuse to connect until they are given the new one; sessions stay",
        containers=("sshd",),
        carry_out=_host_keys,
    ),
    "database-password": Procedure(
        means="slurmdbd starts again: no records for some seconds, which slurmctld keeps meanwhile; running jobs go on",
        containers=("mariadbd", "slurmdbd"),
        goes_on_with=("mariadbd",),
        carry_out=_database_password,
    ),
}
"""By the key's name."""
