"""A slurm.conf of our own for sacctmgr and scontrol: nothing of the cluster's real one has to be there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
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


def slurm_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Slurm's commands use that file, and print times in UTC and in one form."""
    directory = Path(tempfile.mkdtemp(prefix="policy-"))
    path = directory / "slurm.conf"
    path.write_text(slurm_conf(env), encoding="utf-8")
    kept = {name: value for name, value in env.items() if not name.startswith(("SLURM", "SACCT"))}
    return {**kept, "SLURM_CONF": str(path), "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def remove(env: Mapping[str, str]) -> None:
    """Remove what `slurm_env` has made."""
    path = Path(env["SLURM_CONF"])
    path.unlink(missing_ok=True)
    os.rmdir(path.parent)  # noqa: PTH106
