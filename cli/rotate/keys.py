"""The keys that can be rotated, and what makes everybody use a new one (cli/rotate/rotation.py)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from cli.errors import Failure
from cli.rotate.rotation import ALL_PODS, GOES_ON, Key, Rotation, encoded
from components.secrets import (
    DATABASE_PASSWORD_BYTES,
    JWT_KEY_BYTES,
    LOGIN_PUBLIC_KEY_FILE,
    MUNGE_KEY_BYTES,
    PUBLIC_KEY_FILE,
    WORKER_HOST_KEY,
)
from images.common.files import HOST_KEY
from images.common.mariadb import PROBE, SOCKET, probe_options, statements
from local.report import Report
from slurm.certificates import SEED_BYTES, ed25519_private_key_pem, ed25519_public_key

_ROUNDS = 5
"""Pods that come meanwhile may have had the old key a moment ago."""

_MUNGED_COPY = "/run/munged/munge.key"
"""What a munged has read at its start."""

_AS_MYSQL = ("setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups")

_REPLACE_PROBE = (
    f"umask 077; cat >{PROBE}.new && chown --reference={PROBE} {PROBE}.new && "
    f"chmod --reference={PROBE} {PROBE}.new && mv {PROBE}.new {PROBE}"
)
"""What the readiness probe logs in with. It appears whole or not at all."""


def _munge(rotation: Rotation, report: Report) -> str:
    """All munged's at one moment: two keys are never valid together."""
    pause = 0.0
    for _ in range(_ROUNDS):
        old = rotation.stale(_MUNGED_COPY)
        if not old:
            return f"pods did not understand each other for {pause:.1f} s"
        with report.step(f"Starting {len(old)} munged again, all at one moment") as step:
            pause += rotation.restart(old, "munge", step, together=True)
    raise Failure("some pods still have the old key", hint=GOES_ON)


def _jwt(rotation: Rotation, report: Report) -> str:
    """Both have copied the key at their start."""
    with report.step("Starting slurmdbd again") as step:
        rotation.restart(rotation.places("slurmdbd"), "slurm", step)
    with report.step("Starting slurmctld again") as step:
        took = rotation.restart(rotation.places("slurmctld"), "root", step)
    return f"tokens of before are refused from now on; slurmctld was away for {took:.1f} s"


def _database_password(rotation: Rotation, report: Report) -> str:
    """The database first: slurmdbd goes on with the connections that it has, until it starts again."""
    password = rotation.content.decode()
    with report.step("Telling the database") as step:
        for place in rotation.places("mariadbd"):
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
    file = PUBLIC_KEY_FILE if rotation.key.name == WORKER_HOST_KEY else LOGIN_PUBLIC_KEY_FILE
    rotation.write("configmap", WORKER_HOST_KEY, {file: key})  # the cluster's own pods know it by a file
    rotation.touch(*ALL_PODS)
    # What an earlier rotation has bound is away: kubelet has deleted it, and over that nothing can be mounted.
    again = f"umount {HOST_KEY} 2>/dev/null; mount --bind {rotation.key.path} {HOST_KEY} && kill -HUP 1"
    with report.step("Telling sshd"):
        rotation.each(rotation.places(), lambda place: rotation.must(place, "sh", "-c", again))
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    fingerprint = encoded(digest).rstrip("=")
    return f"sessions stay. The new key, for known_hosts:\n{key}\nSHA256:{fingerprint}"


_ALL = (
    Key(
        name="munge", value="munge", length=MUNGE_KEY_BYTES, secret="munge-key", path="/secrets/munge/munge.key",  # noqa: S106
        content=base64.b64decode, containers=("munged",), carry_out=_munge,
        means="for some seconds pods do not understand each other: commands of Slurm wait or fail, running jobs go on",
    ),
    Key(
        name="jwt", value="jwt", length=JWT_KEY_BYTES, secret="jwt-key", path="/secrets/jwt/jwt_hs256.key",  # noqa: S106
        content=base64.b64decode, containers=("slurmctld", "slurmdbd"), carry_out=_jwt,
        means="all tokens that were given out end at once, and their owners need new ones; slurmctld and slurmdbd "
        "start again, running jobs go on",
    ),
    Key(
        name="host-keys", value="host-seed", length=SEED_BYTES, secret="ssh-host-keys",  # noqa: S106
        path="/secrets/ssh/ssh_host_ed25519_key", content=lambda value: ed25519_private_key_pem(value).encode(),
        containers=("sshd",), carry_out=_host_keys,
        means="SSH clients that know the old key refuse to connect until they are given the new one; sessions stay",
    ),
    Key(
        name=WORKER_HOST_KEY, value="worker-host-seed", length=SEED_BYTES, secret=WORKER_HOST_KEY,
        path="/secrets/ssh/ssh_host_ed25519_key", content=lambda value: ed25519_private_key_pem(value).encode(),
        containers=("worker-sshd",), carry_out=_host_keys,
        means="SSH clients outside of the cluster that know the workers' old key refuse to connect, and those on its "
        "nodes may for a minute; sessions stay",
    ),
    Key(
        name="database-password", value="database", length=DATABASE_PASSWORD_BYTES, secret="database-password",  # noqa: S106
        path="/secrets/database/password", content=str.encode, containers=("mariadbd", "slurmdbd"),
        goes_on_with=("mariadbd",), carry_out=_database_password,
        means="slurmdbd starts again: no records for some seconds, which slurmctld keeps meanwhile; running jobs go on",
    ),
)  # fmt: skip

KEYS: Mapping[str, Key] = {key.name: key for key in _ALL}
"""By their names."""
