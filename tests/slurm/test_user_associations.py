"""Whom slurmctld knows by number, where jobs need an association: with real slurmdbd and slurmctld."""

from __future__ import annotations

import pytest

from config import load_config
from slurm.users import identity_files
from tests import stacks
from tests.slurm.accounting import AccountingSandbox, sacctmgr
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until

UIDS = {"alice": 23101, "bob": 23102, "carol": 23103}
ENFORCED = "AccountingStorageEnforce=associations\n"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """alice is declared and may book on the account ml; jobs without an association are refused."""
    sandbox = slurm_cluster(
        slurm_version, config=configuration(slurm_version, "alice"), workers=1, kind=AccountingSandbox
    )
    assert sacctmgr(sandbox, "add account ml").returncode == 0
    assert sacctmgr(sandbox, "add user alice account=ml").returncode == 0
    return sandbox


def configuration(version: str, *names: str) -> dict[str, str]:
    users = {name: {"uid": UIDS[name]} for name in names}
    return accounting_config(version, ENFORCED, **identity_files(load_config({**stacks.dev(), "users": users})))


def declare(cluster: AccountingSandbox, *names: str) -> None:
    """Publish these users, and wait as `up` does until the configuration is active."""
    activate(cluster, configuration(cluster.version, *names))


def submit(cluster: AccountingSandbox, name: str) -> str:
    """The job's account, or why there is no job."""
    user = f"setpriv --reuid={UIDS[name]} --regid={UIDS[name]} --clear-groups"
    done = cluster.run(f"cd /tmp && {user} sbatch --parsable --output=/dev/null --wrap true", pod="default-0")
    if done.returncode != 0:
        return done.stderr
    return cluster.run(f"squeue --noheader --states=all --jobs={done.stdout.strip()} --format=%a").stdout.strip()


def known_uid(cluster: AccountingSandbox, name: str) -> str:
    """The number that slurmctld has for a user of its associations."""
    shown = cluster.run(f"scontrol -o show assoc_mgr users={name} flags=users").stdout
    return next((word.partition("(")[2].rstrip(")") for word in shown.split() if word.startswith("UserName=")), "")


def test_an_association_that_waited_for_its_user_has_the_number_when_the_list_is_active(
    cluster: AccountingSandbox,
) -> None:
    """slurmctld looks for missing numbers when it reads its configuration again; else only once an hour."""
    assert sacctmgr(cluster, "add user carol account=ml").returncode == 0
    assert known_uid(cluster, "carol") == "4294967294"
    assert "Invalid account" in submit(cluster, "carol")

    declare(cluster, "alice", "bob", "carol")

    wait_until(lambda: known_uid(cluster, "carol") == str(UIDS["carol"]), lambda: known_uid(cluster, "carol"))
    assert submit(cluster, "carol") == "ml"
