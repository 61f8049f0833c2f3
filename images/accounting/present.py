"""The policy that is in force, read with sacctmgr and scontrol.

Columns rather than --json: they have the names of the options, they are the same in 24.11 and 26.05, and scontrol's
JSON leaves the comment of a reservation out (tried with both). Text that may contain the separator comes last.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import NOT_STARTED, TIMED_OUT, Runner
from images.common.policy import reservation
from images.common.policy.document import ASSOCIATION, QOS, ROOT, Field, Key, State
from images.common.policy.plan import Job
from images.common.process import required_env

TIMEOUT_SECONDS: Final = 60.0

_LOST: Final = (
    "connection refused", "connection timed out", "unable to contact", "problem talking to the database",
    "connection reset", "failed to open persistent connection", "sending persistmsg", "not responding",
    "unable to connect", "unable to establish", "communication", "zero bytes", "sendto", "connect failure",
)  # fmt: skip
"""What Slurm's commands say when the daemon that they need does not answer."""


class UnreachableError(Exception):
    """slurmdbd or slurmctld does not answer."""


class SlurmError(Exception):
    """Slurm has answered and refused."""


@contextmanager
def slurm_env() -> Iterator[dict[str, str]]:
    """The environment in which sacctmgr and scontrol use a slurm.conf of our own, and print times in UTC.

    Nothing of the cluster's real one has to be there: CLUSTER_NAME, CONTROLLER and ACCOUNTING (HOST:PORT of slurmctld
    and slurmdbd) say all. AUTH_TYPE is auth/munge by default. Raises CannotGoOnError where one is missing.
    """
    controller, _, controller_port = required_env("CONTROLLER").rpartition(":")
    accounting, _, accounting_port = required_env("ACCOUNTING").rpartition(":")
    auth = os.environ.get("AUTH_TYPE") or "auth/munge"
    text = (
        f"ClusterName={required_env('CLUSTER_NAME')}\n"
        f"SlurmctldHost={controller}\n"
        f"SlurmctldPort={controller_port}\n"
        "SlurmUser=slurm\n"
        f"AuthType={auth}\n"
        f"CredType={auth.replace('auth/', 'cred/')}\n"
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        f"AccountingStorageHost={accounting}\n"
        f"AccountingStoragePort={accounting_port}\n"
        "MessageTimeout=30\n"
        "TCPTimeout=5\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SACCT"))}
    with tempfile.TemporaryDirectory(prefix="policy-") as directory:
        path = Path(directory) / "slurm.conf"
        path.write_text(text, encoding="utf-8")
        yield {**kept, "SLURM_CONF": str(path), "TZ": "UTC", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Slurm's commands for one cluster."""

    runner: Runner
    cluster: str

    def call(self, argv: Sequence[str]) -> str:
        """What a command prints. Raises one of the two errors above with Slurm's own words."""
        result = self.runner(argv, timeout=TIMEOUT_SECONDS)
        if result.ok:
            return result.stdout
        said = f"{result.stderr}\n{result.stdout}".strip() or result.message
        if result.code in {TIMED_OUT, NOT_STARTED} or any(sign in said.lower() for sign in _LOST):
            raise UnreachableError(said)
        raise SlurmError(said)

    def table(self, what: str, columns: Sequence[str], *where: str) -> list[list[str]]:
        """Rows of `sacctmgr list`, each with as many values as there are columns.

        A line break inside of the last column makes a line with fewer values, which is left out.
        """
        printed = self.call(["sacctmgr", "--noheader", "--parsable2", "list", *what.split(), *where,
                             f"format={','.join(columns)}"])  # fmt: skip
        rows = (line.split("|", len(columns) - 1) for line in printed.split("\n") if line)
        return [row for row in rows if len(row) == len(columns)]

    def has_cluster(self) -> bool:
        """Whether slurmctld has introduced itself to slurmdbd."""
        return [self.cluster] in self.table("cluster", ["Cluster"])


def read(slurm: Slurm) -> State:
    """Everything that is there. Raises UnreachableError, SlurmError, or ValueError for what is not understood."""
    with ThreadPoolExecutor() as pool:
        qos = pool.submit(_read_qos, slurm)
        rows = pool.submit(_read_associations, slurm)
        texts = [pool.submit(slurm.table, "account", ["Account", column]) for column in ("Descr", "Org")]
        users = pool.submit(slurm.table, "user", ["User", "DefaultAccount", "Admin"])
        reservations = pool.submit(slurm.call, ["scontrol", "show", "reservation", "--oneliner"])
        accounts, associations = rows.result()
        for what, text in zip(("description", "organization"), texts, strict=True):
            said = {account: value.strip() for account, value in text.result()}
            for key, values in accounts.items():
                values[what] = said.get(key[0], "")
        named = {user for user, _, _ in associations}
        return State(
            qos=qos.result(),
            accounts=accounts,
            associations=associations,
            users={
                (user,): {"default_account": default, "admin_level": level.lower()}
                for user, default, level in users.result()
                if user in named
            },
            reservations=reservation.parse(reservations.result()),
        )


def _values(fields: Sequence[Field], texts: Sequence[str]) -> dict[str, Any]:
    return {field.key: field.parse(text) for field, text in zip(fields, texts, strict=True)}


def _read_qos(slurm: Slurm) -> dict[Key, dict[str, Any]]:
    """Descriptions in small letters, as sacctmgr sets them: it could not give `normal` its first one back."""
    rows = slurm.table("qos", ["Name", *(field.column for field in QOS)])
    return {(name,): _values(QOS, [*texts[:-1], texts[-1].lower()]) for name, *texts in rows}


def _read_associations(slurm: Slurm) -> tuple[dict[Key, dict[str, Any]], dict[Key, dict[str, Any]]]:
    """Accounts and users in accounts, each with what it has itself and not from above (`wopl`)."""
    columns = ["Account", "User", "Partition", "ParentName", *(field.column for field in ASSOCIATION)]
    accounts: dict[Key, dict[str, Any]] = {}
    associations: dict[Key, dict[str, Any]] = {}
    for account, user, partition, parent, *texts in slurm.table(
        "assoc wopl", columns, "where", f"cluster={slurm.cluster}"
    ):
        values = _values(ASSOCIATION, texts)
        if user and user != ROOT:
            associations[(user, account, partition)] = values
        elif not user and account != ROOT:
            accounts[(account,)] = {"parent": parent} | values
    return accounts, associations


def active_jobs(slurm: Slurm) -> Iterator[Job]:
    """Jobs that wait, run or are suspended, as slurmdbd knows them."""
    states = "PENDING,RUNNING,SUSPENDED,REQUEUED,RESIZING"
    # Where no association is asked for an account is whatever its user has written, lines of other jobs as well.
    between = f"|{secrets.token_hex(4)}|"
    printed = slurm.call(
        ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", f"--clusters={slurm.cluster}",
         f"--state={states}", f"--delimiter={between}", "--format=JobID,User,QOS,Account"]
    )  # fmt: skip
    for line in printed.split("\n"):
        job, *values = line.split(between, 3)
        if len(values) == 3 and job[:1].isdecimal():
            user, qos, account = values
            yield Job(id=job, user=user, account=account, qos=qos)
