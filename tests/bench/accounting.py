"""The records of many jobs."""

from __future__ import annotations

from config import load_config
from slurm.names import DATABASE
from tests.bench.cluster import Cluster
from tests.bench.figures import Bench, timed
from tests.e2e.harness import wait_until

JOBS = 10_000
REAL_JOBS = 1000
"""Tasks of a real array; their records are copied in the database until there are `JOBS`, steps included."""

COPY = """
SET @ids = (SELECT MAX(id_job) FROM {cluster}_job_table);
CREATE TEMPORARY TABLE some_jobs AS SELECT * FROM {cluster}_job_table WHERE account = 'bench';
CREATE TEMPORARY TABLE some_steps AS
  SELECT * FROM {cluster}_step_table WHERE job_db_inx IN (SELECT job_db_inx FROM some_jobs);
CREATE TEMPORARY TABLE numbers AS SELECT job_db_inx AS old, ROW_NUMBER() OVER () AS new FROM some_jobs;
UPDATE some_jobs JOIN numbers ON job_db_inx = old SET job_db_inx = new;
UPDATE some_steps JOIN numbers ON job_db_inx = old SET job_db_inx = new;
""" + "".join(
    "UPDATE some_jobs SET job_db_inx = job_db_inx + 1048576, id_job = id_job + @ids;"
    "UPDATE some_steps SET job_db_inx = job_db_inx + 1048576;"
    "INSERT INTO {cluster}_job_table SELECT * FROM some_jobs;"
    "INSERT INTO {cluster}_step_table SELECT * FROM some_steps;\n"
    for _ in range(JOBS // REAL_JOBS - 1)
)


def records(bench: Bench, cluster: Cluster) -> None:
    """`sacct` over a day with many jobs; for each job's steps slurmdbd asks the database once."""
    make_records(cluster)
    note = f"{REAL_JOBS} real array tasks, their records copied in the database"
    name = f"sacct of a day with {JOBS} finished jobs and their steps"
    bench.measure(name, lambda _: timed(lambda: todays_jobs(cluster)), runs=5, goal=2, note=note)


def make_records(slurm: Cluster) -> None:
    """Let 10,000 finished jobs of today be in the database: 1,000 real ones and nine copies of their records.

    The database's volume outlives the cluster of a bench: what an earlier run of today has made is taken.
    """
    cluster = load_config(slurm.sections).slurm.cluster_name
    slurm.slurm("sacctmgr -i add account bench; sacctmgr -i add user alice account=bench", check=False)
    if count_records(slurm) >= JOBS:
        return
    slurm.submit("true", "--account=bench", "--chdir=/tmp", f"--array=1-{REAL_JOBS}", "--output=/dev/null")
    wait_until(lambda: not slurm.slurm("squeue --noheader").strip(), "the array is done", timeout=1800)
    wait_until(lambda: count_records(slurm) >= REAL_JOBS, "its records have arrived", timeout=120)
    query = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "slurm_acct_db", "--execute"]
    slurm.exec(f"{DATABASE}-0", *query, COPY.format(cluster=cluster), container="mariadbd")
    assert count_records(slurm) >= JOBS


def count_records(slurm: Cluster) -> int:
    """How many finished jobs of today `sacct` knows."""
    return len(todays_jobs(slurm, "--allocations").splitlines())


def todays_jobs(slurm: Cluster, options: str = "") -> str:
    """`sacct` of one day: a line for each job and for each step."""
    command = f"sacct --allusers {options} --noheader --parsable2 --starttime=midnight"
    return slurm.slurm(f"{command} --accounts=bench --format=jobid,user,account,state,elapsed,cputimeraw,alloctres")
