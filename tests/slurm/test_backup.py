"""Backups with real restic, MariaDB and slurmctld, and a real S3 store: what was saved under load comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.s3_store import Store, s3_store
from tests.slurm.accounting import (
    MEMORY_LIMIT,
    AccountingSandbox,
    kill,
    wait_for_accounting,
    wait_for_database,
)
from tests.slurm.backups import BackupPod, make_jail, refused
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.pod import wait_until


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with s3_store() as running:
        yield running


def sql(sandbox: AccountingSandbox, statement: str) -> list[str]:
    client = ["mariadb", "--socket=/run/mysqld/mysqld.sock", "--skip-column-names", "--batch", "slurm_acct_db"]
    done = sandbox.pods["database"].run([*client, f"--execute={statement}"])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


RECORDS = "SELECT id_job, job_name, time_submit FROM sandbox_job_table ORDER BY id_job"


def submit(sandbox: AccountingSandbox, *options: str, wrap: str = "true") -> int:
    done = sandbox.run(["sbatch", "--parsable", "--output=/dev/null", "--mem=1", *options, f"--wrap={wrap}"])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def queue(sandbox: AccountingSandbox) -> dict[int, str]:
    lines = sandbox.run("squeue --noheader --format='%A %j'").stdout.splitlines()
    return {int(line.split()[0]): line.split()[1] for line in lines}


@contextmanager
def load(sandbox: AccountingSandbox) -> Iterator[list[int]]:
    """Jobs that are submitted, one after the other, until it ends."""
    jobs, stop = list[int](), threading.Event()

    def submit_all() -> None:
        while not stop.is_set():
            jobs.append(submit(sandbox))

    thread = threading.Thread(target=submit_all)
    thread.start()
    try:
        yield jobs
    finally:
        stop.set()
        thread.join()


def stop_daemons(sandbox: AccountingSandbox) -> None:
    kill(sandbox.controller, "slurmctld", signal.SIGTERM)
    kill(sandbox.pods["slurmdbd-0"], "slurmdbd", signal.SIGTERM)


def start_daemons(sandbox: AccountingSandbox) -> None:
    sandbox.pods["slurmdbd-0"].start_program("slurmdbd")
    wait_for_accounting(sandbox)
    sandbox.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in sandbox.run("scontrol ping").stdout, sandbox.logs)


def test_what_was_saved_under_load_comes_back_in_an_empty_cluster(
    own_cluster: ClusterFactory, store: Store, slurm_version: str, tmp_path: Path
) -> None:
    files = make_jail(tmp_path / "jail")
    first = own_cluster(slurm_version, workers=1, kind=AccountingSandbox)
    held = submit(first, "--hold", "--job-name=held", wrap="echo kept > /tmp/kept")
    saved_by_slurmctld()
    with load(first) as jobs:
        wait_until(lambda: len(jobs) > 5, "some jobs")
        backups = BackupPod(first, store, tmp_path / "jail", prefix=tmp_path.name)
        before = jobs[-1]
        saved = backups.save(LARGEST_FILE=str(2**32))
    assert jobs[-1] > before, "jobs came during the backup"
    (listed,) = [found for found in backups.list() if found["id"] == saved]
    assert listed["complete"]
    assert listed["parts"].keys() == {"state", "keys", "database", "jail"}
    script = first.run(["scontrol", "write", "batch_script", str(held), "-"]).stdout
    records = dict.fromkeys(sql(first, RECORDS))
    first.__exit__()

    second = own_cluster(slurm_version, workers=1, kind=AccountingSandbox)
    backups = BackupPod(second, store, tmp_path / "empty", prefix=tmp_path.name)
    a_rehearsal_finds_it_as_it_was(backups, saved)
    stop_daemons(second)
    said = backups.restore()
    start_daemons(second)
    assert f"restoring state, database, jail of backup {saved}" in said
    restored = sql(second, RECORDS)
    assert set(restored) <= records.keys(), "every record that came back was one"
    assert {int(line.split()[0]) for line in restored} >= {held, *jobs[: jobs.index(before)]}
    assert queue(second)[held] == "held"
    assert second.run(["scontrol", "write", "batch_script", str(held), "-"]).stdout == script
    assert submit(second) > max(int(line.split()[0]) for line in restored)
    assert second.run(["scontrol", "release", str(held)]).returncode == 0
    # What ran when it was saved runs nowhere now, and keeps its CPUs until slurmctld asks the worker again.
    second.run("scancel --state=RUNNING --user=root")
    worker = second.pods["default-0"]
    shown = "squeue --states=all; scontrol show node"
    wait_until((worker.root / "tmp/kept").exists, lambda: second.logs() + second.run(shown).stdout)
    compare_jail(tmp_path / "empty", files)
    numbers_given_since_a_backup_are_not_given_again(second, backups)


def saved_by_slurmctld() -> None:
    """It saves its queue up to five seconds late, and a rehearsal counts on what is ten seconds old."""
    time.sleep(12)


def a_rehearsal_finds_it_as_it_was(backups: BackupPod, saved: str) -> None:
    outcome = backups.rehearse()
    assert outcome["backup"] == saved
    assert all(outcome["found"][what] >= 1 for what in ("jobs", "associations", "in the queue")), outcome


@one_version
def test_a_backup_is_as_it_was_under_the_next_release_and_leads_back_from_it(
    own_cluster: ClusterFactory, store: Store, slurm_version: str, tmp_path: Path
) -> None:
    first = own_cluster("24.11", workers=1, kind=AccountingSandbox)
    ran, held = submit(first), submit(first, "--hold", "--job-name=held")
    wait_until(lambda: ran not in queue(first), first.logs)
    saved_by_slurmctld()
    saved = BackupPod(first, store, tmp_path / "jail", prefix=tmp_path.name).save(PARTS="state database")
    first.__exit__()
    second = own_cluster("26.05", workers=1, kind=AccountingSandbox)
    backups = BackupPod(second, store, tmp_path / "jail", prefix=tmp_path.name)
    a_rehearsal_finds_it_as_it_was(backups, saved)
    stop_daemons(second)
    backups.restore("state database")
    start_daemons(second)
    assert {ran, held} <= {int(line.split()[0]) for line in sql(second, RECORDS)}
    later = [submit(second, "--hold") for _ in range(3)]
    saved_by_slurmctld()
    third = on_volumes_of(second, own_cluster, tmp_path)
    BackupPod(third, store, tmp_path / "jail", prefix=tmp_path.name).restore("state database", AT=saved)
    start_daemons(third)
    assert queue(third) == {held: "held"}
    assert submit(third, "--hold") > max(later), "ids of jobs that the newer one has accepted are not given again"


def on_volumes_of(new: AccountingSandbox, own_cluster: ClusterFactory, tmp_path: Path) -> AccountingSandbox:
    """A stopped cluster of the older release that finds queue and database as the newer one has left them."""
    volumes = ("state", "database-volume")
    stop_daemons(new)
    kill(new.pods["database"], "mariadbd", signal.SIGTERM)
    for name in volumes:
        subprocess.run(["cp", "--archive", str(new.work / name), str(tmp_path / name)], check=True)
    old = own_cluster("24.11", workers=1, kind=AccountingSandbox)
    stop_daemons(old)
    database = old.pods["database"]
    kill(database, "mariadbd", signal.SIGTERM)
    for name in volumes:
        subprocess.run(["find", str(old.work / name), "-mindepth", "1", "-delete"], check=True)
        subprocess.run(["cp", "--archive", f"{tmp_path / name}/.", str(old.work / name)], check=True)
    database.start_program("mariadbd", {"MEMORY_LIMIT": str(MEMORY_LIMIT)})
    wait_for_database(database)
    return old


def numbers_given_since_a_backup_are_not_given_again(sandbox: AccountingSandbox, backups: BackupPod) -> None:
    """Jobs in the queue know their association by its number, of which the restored database knows nothing."""

    def associated(account: str) -> int:
        policy(sandbox, f"add account {account}")
        return int(sql(sandbox, f"SELECT id_assoc FROM sandbox_assoc_table WHERE acct = '{account}'")[0])

    saved = backups.save()
    since = associated("since")
    policy(sandbox, "add cluster other")
    said = refused(lambda: backups.restore("database", AT=saved))
    assert "has the records of other clusters, too, which would go: other" in said
    policy(sandbox, "delete cluster other")
    stop_daemons(sandbox)
    backups.restore("database", AT=saved)
    sql(sandbox, "DROP TABLE sandbox_assoc_table")  # as where it is cut short while it loads
    backups.restore("database", AT=saved)
    start_daemons(sandbox)
    assert associated("later") > since


def policy(sandbox: AccountingSandbox, what: str) -> None:
    done = sandbox.run(f"sacctmgr --immediate {what}", pod="slurmdbd-0", env={"SLURM_CONF": "/config/slurm/slurm.conf"})
    assert done.returncode == 0, done.stdout + done.stderr


def compare_jail(jail: Path, files: dict[str, bytes]) -> None:
    home = jail / "home/alice"
    assert {name: (jail / name).read_bytes() for name in files} == files
    assert os.getxattr(home / "data", "user.mood") == b"fine"
    status = (home / "data").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (10001, 10001, 0o640)
    assert (home / "link").readlink() == Path("/etc/shadow")
    assert (home / "fifo").is_fifo()
    assert not (home / "holes").exists(), "it is larger than largest_file"
    assert not (jail / "tmp/scratch").exists()
