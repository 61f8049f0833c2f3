"""slurmdbd at its start, for real: records of 24.11 under 26.05, and what keeps it from serving."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.slurm.accounting import (
    AccountingSandbox,
    BareSandbox,
    kill,
    sql,
    start_accounting,
    start_database,
    wait_for_accounting,
)
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import Pod, wait_until

OLD, NEW = "24.11", "26.05"
JOBS, DOUBLED = 50, 6
"""Jobs that ran, and how often the number of their records is doubled."""

RECORDS = "SELECT COUNT(*), SUM(state), SUM(time_end - time_start) FROM sandbox_job_table"
HELD_SECONDS = 25
TABLES = {"sandbox_job_table": "job_db_inx", "sandbox_step_table": "job_db_inx"}
REFUSED = 2


@pytest.fixture(scope="module")
def old_volume(slurm_cluster: ClusterFactory, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The volume of a database of 24.11 with thousands of jobs, and what `RECORDS` finds in it."""
    volume = tmp_path_factory.mktemp("old-database")
    sandbox = slurm_cluster(OLD, workers=1, kind=AccountingSandbox)
    done = sandbox.run(f"cd /tmp; sbatch --uid=nobody --array=1-{JOBS} --mem=1 --output=/dev/null --wrap true")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: sql(sandbox, f"{RECORDS} WHERE state = 3").split()[0] == str(JOBS), sandbox.logs)
    kill(sandbox.pods["slurmdbd-0"], "slurmdbd", signal.SIGTERM)
    for _ in range(DOUBLED):
        further = sql(sandbox, "SELECT MAX(job_db_inx) - MIN(job_db_inx) + 1 FROM sandbox_job_table")
        ids = sql(sandbox, "SELECT MAX(id_job) FROM sandbox_job_table")
        for table in TABLES:
            _double(sandbox, table, {"job_db_inx": further, "id_job": ids})
    found = sql(sandbox, RECORDS)
    assert int(found.split()[0]) == JOBS * 2**DOUBLED
    kill(sandbox.pods["database"], "mariadbd", signal.SIGTERM)
    subprocess.run(["cp", "--archive", f"{sandbox.work}/database-volume/.", volume], check=True)
    return volume, found


def _double(sandbox: AccountingSandbox, table: str, more: dict[str, str]) -> None:
    of_table = f"FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{table}'"
    columns = sql(sandbox, f"SELECT GROUP_CONCAT(column_name) {of_table}").split(",")
    values = ", ".join(f"`{name}` + {more.get(name, '0')}" if name in more else f"`{name}`" for name in columns)
    sql(sandbox, f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in columns)}) SELECT {values} FROM {table}")


@pytest.fixture
def upgraded(own_cluster: ClusterFactory, old_volume: tuple[Path, str]) -> BareSandbox:
    """Pods of 26.05 beside the database of 24.11, whose own image comes later."""
    sandbox = own_cluster(NEW, kind=BareSandbox, config=accounting_config(NEW), workers=0)
    subprocess.run(["cp", "--archive", f"{old_volume[0]}/.", sandbox.work / "database-volume"], check=True)
    sandbox.version = OLD
    start_database(sandbox)
    sandbox.version = NEW
    return sandbox


def start_slurmdbd(sandbox: BareSandbox) -> Pod:
    return start_accounting(sandbox, wait=False)


def test_a_change_of_a_table_that_takes_long_is_told_and_no_record_is_lost(
    upgraded: BareSandbox, old_volume: tuple[Path, str]
) -> None:
    """`slurmdbd -u` says that nothing is to be converted from 24.11, and then the start changes the tables.

    They lead back: slurmdbd of 24.11 takes its place again.
    """
    holder = subprocess.Popen(
        upgraded.pods["database"].command([
            "mariadb", "--socket=/run/mysqld/mysqld.sock", "slurm_acct_db",
            f"--execute=LOCK TABLES sandbox_job_table READ; SELECT SLEEP({HELD_SECONDS})",
        ]),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: "SLEEP" in sql(upgraded, "SHOW PROCESSLIST"), "the table is held")
    pod = start_slurmdbd(upgraded)
    told = 'slurmdbd: converting the database: alter table "sandbox_job_table"'
    wait_until(lambda: told in pod.log("slurmdbd"), upgraded.logs)
    assert "slurmdbd -u: Slurm Database already at the highest version" in pod.log("slurmdbd")
    wait_for_accounting(upgraded)
    holder.wait()
    assert sql(upgraded, RECORDS) == old_volume[1]
    asked = "sacct --allusers --starttime=now-1days --allocations --noheader --format=jobid,state"
    records = upgraded.run(asked, pod="slurmdbd-0", env={"SLURM_CONF": "/config/slurm/slurm.conf"}).stdout.splitlines()
    assert len(records) == JOBS * 2**DOUBLED
    assert {line.split()[-1] for line in records} == {"COMPLETED"}
    kill(pod, "slurmdbd", signal.SIGTERM)
    upgraded.remove_pod("slurmdbd-0")
    upgraded.version = OLD
    back = start_accounting(upgraded)
    assert 'dropping column sluid from table "sandbox_job_table"' in back.log("slurmdbd")
    assert sql(upgraded, RECORDS) == old_volume[1]


def test_a_database_of_a_release_that_is_too_new_is_refused_and_nothing_in_it_changed(upgraded: BareSandbox) -> None:
    sql(upgraded, "UPDATE convert_version_table SET version = 99")
    pod = start_slurmdbd(upgraded)
    assert pod.processes[-1].wait(60) == REFUSED
    assert "slurmdbd refuses the database, in which nothing was changed" in pod.log("slurmdbd")
    assert "newer version of Slurm" in pod.log("slurmdbd")
    assert "sluid" not in sql(upgraded, "SHOW COLUMNS FROM sandbox_job_table")


def test_one_that_hangs_after_a_failed_connection_is_started_anew(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    """Six connections: four of the check, that of `slurmdbd -u`, and the first one of slurmdbd; the next one fails."""
    sandbox = own_cluster(slurm_version, kind=BareSandbox, config=accounting_config(slurm_version), workers=0)
    start_database(sandbox)
    pod = start_accounting(sandbox)
    kill(pod, "slurmdbd", signal.SIGTERM)
    limit = "ALTER USER slurm@'%' WITH MAX_CONNECTIONS_PER_HOUR {}; FLUSH USER_RESOURCES"
    sql(sandbox, limit.format(6))
    process = pod.start_program("slurmdbd")
    wait_until(lambda: "Problem getting cache of data" in pod.log("slurmdbd"), sandbox.logs)
    sql(sandbox, limit.format(0))
    assert process.wait(120) == -signal.SIGKILL
    assert "slurmdbd has had no connection to its database for 60 s" in pod.log("slurmdbd")
    pod.start_program("slurmdbd")
    wait_for_accounting(sandbox)
