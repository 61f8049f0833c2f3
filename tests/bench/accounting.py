"""Accounting: a policy of many users, and the records of many jobs."""

from __future__ import annotations

import json
from typing import Any

from config import load_config
from slurm.names import ACCOUNTING, ACCOUNTING_HOST, DATABASE
from slurm.policy import environment, policy_document
from tests.bench.cluster import Cluster
from tests.bench.row import Measuring, timed
from tests.e2e.harness import wait_until

USERS = 500
ACCOUNTS = 50
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


def policy(bench: Measuring, cluster: Cluster) -> None:
    """Many users and accounts from nothing, then the same again."""
    own, document = policy_document(load_config(cluster.sections)), many_users(cluster.sections)
    again: list[float] = []

    def once(_: int) -> float:
        taken = timed(lambda: apply_policy(cluster, document))
        again.append(timed(lambda: apply_policy(cluster, document)))
        apply_policy(cluster, own, prune=True)
        return taken

    bench.measure(f"policy of {USERS} users in {ACCOUNTS} accounts from nothing", once, runs=4, goal=20)
    bench.take("the same policy again, unchanged", again, goal=3)


def records(bench: Measuring, cluster: Cluster) -> None:
    """`sacct` over a day with many jobs."""
    make_records(cluster)
    note = f"{REAL_JOBS} real array tasks, their records copied in the database"
    finished = f"sacct of a day with {JOBS} finished jobs"
    for name, steps in ((finished, False), (f"{finished} and their steps", True)):
        bench.measure(name, lambda _: timed(lambda: todays_jobs(cluster, steps=steps)), runs=5, goal=2, note=note)  # noqa: B023


def many_users(sections: dict[str, Any]) -> str:
    """The policy document of a stack with 500 users in 50 accounts of two levels, with seven different shares."""
    accounts = {
        f"team{n:02}": {"fairshare": n + 1, **({"parent": f"team{n % 5:02}"} if n >= 5 else {})}
        for n in range(ACCOUNTS)
    }
    users = {
        f"user{n:03}": {"uid": 20000 + n, "accounts": {f"team{n % ACCOUNTS:02}": {"fairshare": n % 7 + 1}}}
        for n in range(USERS)
    }
    return policy_document(load_config({**sections, "accounts": accounts, "users": users}))


def apply_policy(slurm: Cluster, document: str, *, prune: bool = False) -> str:
    """Run the policy program in slurmdbd's pod, as the job does; what it printed."""
    wanted = json.dumps({**json.loads(document), "prune": prune})
    variables = [f"{name}={value}" for name, value in environment(load_config(slurm.sections)).items()]
    command = ["env", *variables, "/usr/libexec/slurmstack/policy", "-"]
    return slurm.kubectl.run(
        "exec", "-i", "-n", slurm.namespace, ACCOUNTING_HOST, "-c", ACCOUNTING, "--", *command, stdin=wanted
    ).stdout


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
    return len(todays_jobs(slurm).splitlines())


def todays_jobs(slurm: Cluster, *, steps: bool = False) -> str:
    """`sacct` of one day: a line per job, or also one per step, for which slurmdbd asks the database once per job."""
    command = f"sacct --allusers {'' if steps else '--allocations'} --noheader --parsable2 --starttime=midnight"
    return slurm.slurm(f"{command} --accounts=bench --format=jobid,user,account,state,elapsed,cputimeraw,alloctres")
