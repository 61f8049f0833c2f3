"""What a backup and its restore take: the images' programs, restic, MariaDB and slurmctld, without Kubernetes.

The store is moto's server in this process, which keeps all in memory: what it takes is in the figures, a network's way
is not.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.row import Measuring, timed
from tests.s3_store import Store, s3_store
from tests.slurm.accounting import AccountingSandbox, kill, wait_for_accounting
from tests.slurm.backups import BackupPod
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until

SMALL, SMALL_BYTES = 10_000, 20 * 2**10
LARGE, LARGE_BYTES = 25, 32 * 2**20
"""Files of the jail: as many small ones as a Python environment or two have, and some data. Their content is random, so
that nothing is saved by compression or found twice."""

DOUBLINGS = 17
"""One job's record is doubled so often: 131,072 records."""

TABLE = "sandbox_job_table"


def backup(bench: Measuring) -> None:
    """A first backup, one of little that is new, and all of it put back into an empty cluster."""
    with s3_store() as store, TemporaryDirectory(prefix="slurmstack-bench-") as directory:
        jail = Path(directory, "jail")
        size = _make_jail(jail)
        what = f"{SMALL + LARGE:,} files, {size / 2**20:,.0f} MiB, {2**DOUBLINGS:,} records"
        bench.say(f"the jail has {what}")
        with _cluster() as cluster:
            _make_records(cluster)
            _save(bench, cluster, store, jail, what)
        _restore(bench, store, Path(directory, "empty"), size, what)


def _cluster() -> AccountingSandbox:
    return AccountingSandbox("24.11", config=accounting_config("24.11"), workers=1)


def _save(bench: Measuring, cluster: AccountingSandbox, store: Store, jail: Path, what: str) -> None:
    def first(number: int) -> float:
        shutil.rmtree(cluster.work / "backup-cache", ignore_errors=True)
        pod = BackupPod(cluster, store, jail, prefix=f"run-{number}")
        taken = timed(pod.save)
        cluster.remove_pod("backup")
        return taken

    row = bench.measure(f"first backup ({what})", first, runs=3)
    row.note = _rate(row.median)
    last = len(row.samples) - 1
    pod = BackupPod(cluster, store, jail, prefix=f"run-{last}")

    def again(number: int) -> float:
        for path in sorted(jail.glob("small/*/*"))[number::100]:
            path.write_bytes(os.urandom(SMALL_BYTES))
        return timed(pod.save)

    bench.measure("backup after one small file of a hundred has changed", again, runs=3)
    for number in range(last):  # what is not put back takes memory of this machine
        for name in store.objects(f"run-{number}/"):
            store.client.delete_object(Bucket="backups", Key=name)


def _restore(bench: Measuring, store: Store, empty: Path, size: int, what: str) -> None:
    def once(number: int) -> float:
        jail = empty.with_name(f"empty-{number}")
        with _cluster() as cluster:
            pod = BackupPod(cluster, store, jail, prefix=f"run-{bench.times(3) - 1}")
            kill(cluster.controller, "slurmctld", signal.SIGTERM)
            kill(cluster.pods["slurmdbd-0"], "slurmdbd", signal.SIGTERM)
            taken = timed(pod.restore)
            assert sum(path.stat().st_size for path in jail.rglob("*") if path.is_file()) == size
            assert _count(cluster) == 2**DOUBLINGS
            cluster.pods["slurmdbd-0"].start_program("slurmdbd")
            wait_for_accounting(cluster)
        shutil.rmtree(jail)
        return taken

    row = bench.measure(f"restore into an empty cluster ({what})", once, runs=3)
    row.note = _rate(row.median)


def _rate(seconds: float) -> str:
    total = SMALL * SMALL_BYTES + LARGE * LARGE_BYTES
    return f"{total / 2**20 / seconds:.0f} MiB of the jail a second, with all else"


def _make_jail(path: Path) -> int:
    for number in range(SMALL):
        file = path / f"small/{number // 100}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(SMALL_BYTES))
    (path / "large").mkdir()
    for number in range(LARGE):
        (path / f"large/{number}").write_bytes(os.urandom(LARGE_BYTES))
    return SMALL * SMALL_BYTES + LARGE * LARGE_BYTES


def _sql(cluster: AccountingSandbox, statement: str) -> list[str]:
    client = ["mariadb", "--socket=/run/mysqld/mysqld.sock", "--skip-column-names", "--batch", "slurm_acct_db"]
    done = cluster.pods["database"].run([*client, f"--execute={statement}"], timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _count(cluster: AccountingSandbox) -> int:
    return int(_sql(cluster, f"SELECT COUNT(*) FROM {TABLE}")[0])


def _make_records(cluster: AccountingSandbox) -> None:
    done = cluster.run(["sbatch", "--output=/dev/null", "--mem=1", "--wrap=true"])
    assert done.returncode == 0, done.stderr
    wait_until(lambda: _count(cluster) == 1, "the job's record", 60)
    wait_until(lambda: _sql(cluster, f"SELECT state FROM {TABLE}") == ["3"], "the record of its end", 60)
    query = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{TABLE}'"
    columns = [name for name in _sql(cluster, query) if name != "job_db_inx"]
    for doubling in range(DOUBLINGS):
        values = [f"id_job + {2**doubling}" if name == "id_job" else f"`{name}`" for name in columns]
        names = ", ".join(f"`{name}`" for name in columns)
        _sql(cluster, f"INSERT INTO {TABLE} ({names}) SELECT {', '.join(values)} FROM {TABLE}")
