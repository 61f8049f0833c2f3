"""A slurm.conf of our own for sacctmgr and scontrol: nothing of the cluster's real one has to be there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REQUIRED = ("CLUSTER_NAME", "CONTROLLER", "ACCOUNTING")
"""Environment variables: the cluster's name, and HOST:PORT of slurmctld and slurmdbd. AUTH_TYPE is auth/munge by
default."""


def slurm_conf(env: Mapping[str, str]) -> str:
    """The file's text. Raises ValueError for what is missing in the environment."""
    missing = [name for name in REQUIRED if not env.get(name)]
    if missing:
        raise ValueError(f"the environment variable {' and '.join(missing)} is not set")
    controller, _, controller_port = env["CONTROLLER"].rpartition(":")
    accounting, _, accounting_port = env["ACCOUNTING"].rpartition(":")
    auth = env.get("AUTH_TYPE") or "auth/munge"
    return (
        f"ClusterName={env['CLUSTER_NAME']}\n"
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


@contextmanager
def slurm_env(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands use that file, and print times in UTC and in one form."""
    text = slurm_conf(env)
    kept = {name: value for name, value in env.items() if not name.startswith(("SLURM", "SACCT"))}
    with tempfile.TemporaryDirectory(prefix="policy-") as directory:
        path = Path(directory) / "slurm.conf"
        path.write_text(text, encoding="utf-8")
        yield {**kept, "SLURM_CONF": str(path), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
