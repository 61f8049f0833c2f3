"""A cluster that teams share: who goes first, who gives way, what is refused; declared in the stack file, seen by its
users from login nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.doctor.cluster.reasons import meaning
from tests.e2e.asking_doctor import findings, first
from tests.e2e.conftest import ENGINES
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.stacks import dev

ALL = "-N2 -n4"
"""All CPUs of both nodes."""

QOS = ["normal", "low", "high"]

POLICY: dict[str, Any] = {
    "accounts": {
        "physics": {"fairshare": 3, "qos": QOS},
        "biology": {"fairshare": 1, "qos": QOS},
        "one_cpu": {"grp_tres": {"cpu": 1}},
        "one_job": {"max_jobs": 1},
        "short": {"max_wall": "10"},
        "few": {"max_submit_jobs": 2},
    },
    "qos": {"low": {}, "high": {"priority": 100, "preempt": ["low"]}},
    "preemption": {"type": "qos", "mode": "requeue"},
    "priority": {"calc_period": 1},
    "licenses": {"matlab": 1},
}

USERS = {"alice": ["physics"], "bob": ["biology"], "carol": ["one_cpu", "one_job", "short", "few"]}


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A cluster of its own, with three users in several accounts."""
    engine = ENGINES[0]
    directory = tmp_path_factory.mktemp("policy")
    key = make_key(directory / "key")
    users = {
        name: {"uid": 10001 + number, "ssh_authorized_keys": [key], "accounts": accounts}
        for number, (name, accounts) in enumerate(USERS.items())
    }
    sections = dev() | POLICY | {"cluster": {"namespace": "e2e-policy"}, "users": users}
    sections["login"] = {"size": 1, "service_type": "ClusterIP"}
    cluster = SlurmOnKubernetes(engine=engine, directory=directory, sections=sections)
    try:
        cluster.up()
        cluster.await_idle("default-0", "default-1")
    except BaseException:
        print(f"logs: {cluster.collect_logs('setup-policy')}")
        raise
    yield cluster
    slurmstack("destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", engine, "--config", str(cluster.file))


@pytest.fixture(autouse=True)
def no_jobs(slurm: SlurmOnKubernetes) -> None:
    """Every test begins with an empty queue."""
    slurm.slurm("scancel --state=pending; scancel --state=running; scancel --state=suspended", check=False)
    wait_until(lambda: not slurm.slurm("squeue --noheader", check=False).strip(), "the queue is empty")
    slurm.await_idle("default-0", "default-1")


def _used(slurm: SlurmOnKubernetes) -> dict[str, float]:
    """Usage by account, summed up anew: Slurm does so once a minute at most, but at each reconfiguration."""
    slurm.slurm("scontrol reconfigure")
    printed = slurm.slurm("sshare --noheader --parsable2 --format=account,rawusage --accounts=physics,biology")
    return {account.strip(): float(used) for account, used in (line.split("|") for line in printed.splitlines())}


def _await_first(slurm: SlurmOnKubernetes, user: str) -> None:
    """Wait until, of two jobs that want all CPUs, this user's is the one that goes first."""
    busy = slurm.submit("sleep 600", ALL, "--account=few", user="carol")
    slurm.await_job(busy, "RUNNING")
    jobs = {slurm.submit("true", ALL, user=name): name for name in ("alice", "bob")}

    def queue() -> list[str]:
        slurm.slurm("scontrol reconfigure")
        shown = slurm.slurm("sprio --noheader --format='%Y %i' | sort --numeric-sort --reverse").splitlines()
        return [jobs.get(line.split()[1], "") for line in shown]

    wait_until(lambda: queue()[:1] == [user], lambda: f"{user} goes first: {queue()}, {_used(slurm)}")
    slurm.slurm(f"scancel {busy} {' '.join(jobs)}")


def test_who_is_behind_its_share_goes_first(slurm: SlurmOnKubernetes) -> None:
    """physics has three shares and biology one. After equal use physics goes first; after much more than three times
    as much, biology. How much exactly a job has used is a matter of the machine, so neither is near the limit.
    """
    slurm.slurm("sacctmgr --immediate modify account name=physics,biology set rawusage=0")
    equal = [slurm.submit("sleep 5", "-n1", user=user) for user in ("alice", "bob")]
    for job in equal:
        slurm.await_job(job)
    wait_until(lambda: all(_used(slurm).values()), lambda: f"both have used something: {_used(slurm)}")
    _await_first(slurm, "alice")
    slurm.await_job(slurm.submit("sleep 15", ALL))
    wait_until(lambda: _used(slurm)["physics"] > 4 * _used(slurm)["biology"], lambda: f"more: {_used(slurm)}")
    _await_first(slurm, "bob")


def test_users_see_their_shares_and_priorities(slurm: SlurmOnKubernetes) -> None:
    shares = slurm.ssh("sshare --all --noheader --parsable2 --format=account,user,rawshares,rawusage", user="bob")
    rows = [line.strip().split("|") for line in shares.splitlines()]
    assert ["physics", "", "3"] in [row[:3] for row in rows]
    assert ["biology", "", "1"] in [row[:3] for row in rows]
    assert all(int(row[3]) > 0 for row in rows if row[:2] in (["physics", "alice"], ["biology", "bob"]))
    slurm.await_job(slurm.submit("sleep 600", ALL), "RUNNING")  # else the first of the others could be started instead
    high, low = (slurm.submit("true", ALL, f"--qos={qos}", user="bob") for qos in ("high", "normal"))
    printed = wait_until(
        lambda: slurm.ssh("sprio --noheader --format='%.15i %.10Q'", user="bob"), "sprio shows the waiting jobs"
    )
    assert dict(line.split() for line in printed.splitlines()) == {high: "50000", low: "0"}


def test_a_high_qos_preempts_and_the_victim_runs_again_to_its_end(slurm: SlurmOnKubernetes) -> None:
    slurm.ssh("rm -f runs")  # of a try before this one
    script = 'echo "run ${SLURM_RESTART_COUNT:-0}" >>runs; test -n "$SLURM_RESTART_COUNT" || sleep 600'
    victim = slurm.submit(script, ALL, "--qos=low", "--output=/dev/null")
    slurm.await_job(victim, "RUNNING")
    wait_until(lambda: slurm.ssh("cat runs", check=False) == "run 0\n", "the victim is at work")
    # Within the same second slurmd takes a job that starts again for the one that it has just ended.
    urgent = slurm.submit("sleep 2; hostname", ALL, "--qos=high", "--output=urgent.out", user="bob")
    slurm.await_job(urgent)
    wait_until(lambda: slurm.job_field(victim, "Restarts") == "1", "the victim is queued again")
    slurm.await_job(victim, "PENDING")
    # Slurm lets it wait for two minutes, until the credential of its first run has expired (slurm.conf(5), AuthInfo).
    slurm.run_now(victim)
    slurm.await_job(victim)
    assert slurm.ssh("cat runs; rm runs") == "run 0\nrun 1\n"
    command = f"sacct --noheader --duplicates --allocations --jobs={victim} --format=state --parsable2"
    wait_until(
        lambda: slurm.slurm(command).split() == ["PREEMPTED", "COMPLETED"],
        lambda: f"accounting has both runs: {slurm.slurm(command)}",
    )


def test_a_chain_of_jobs_goes_on_as_each_one_ends(slurm: SlurmOnKubernetes) -> None:
    first = slurm.submit("sleep 2; echo first >>chain; exit 1", "--hold")
    never = slurm.submit("echo never >>chain", f"--dependency=afterok:{first}")
    repair = slurm.submit("echo repair >>chain", f"--dependency=afternotok:{first}")
    last = slurm.submit("echo last >>chain", f"--dependency=afterok:{repair},afterany:{first}")
    slurm.slurm(f"scontrol release {first}")
    slurm.await_job(first, "FAILED")
    slurm.await_job(last)
    slurm.await_reason(never, "DependencyNeverSatisfied")
    assert slurm.ssh("cat chain; rm chain") == "first\nrepair\nlast\n"


def test_jobs_of_one_name_run_one_after_the_other(slurm: SlurmOnKubernetes) -> None:
    script = "test ! -e alone && touch alone && sleep 2 && rm alone"
    jobs = [slurm.submit(script, "--job-name=alone", "--dependency=singleton") for _ in range(3)]
    for job in jobs:
        slurm.await_job(job)


def test_jobs_wait_for_a_license(slurm: SlurmOnKubernetes) -> None:
    holder = slurm.submit("sleep 600", "--licenses=matlab")
    slurm.await_job(holder, "RUNNING")
    waiting = slurm.submit("true", "--licenses=matlab", user="bob")
    slurm.await_reason(waiting, "Licenses")
    assert "Used=1 Free=0" in slurm.ssh("scontrol show license matlab --oneliner", user="bob")
    slurm.ssh(f"scancel {holder}")
    slurm.await_job(waiting)
    assert "Invalid license specification" in slurm.refusal("--licenses=matlab:2")


@pytest.mark.parametrize(("account", "reason"), [("one_cpu", "AssocGrpCpuLimit"), ("one_job", "AssocMaxJobsLimit")])
def test_a_job_above_a_limit_of_what_may_run_waits(slurm: SlurmOnKubernetes, account: str, reason: str) -> None:
    first, second = (slurm.submit("sleep 600", "-n1", f"--account={account}", user="carol") for _ in range(2))
    slurm.await_job(first, "RUNNING")
    slurm.await_reason(second, reason)
    slurm.ssh(f"scancel {first}", user="carol")
    slurm.await_job(second, "RUNNING")


def test_a_job_may_not_be_longer_than_its_account_allows(slurm: SlurmOnKubernetes) -> None:
    longer = slurm.submit("true", "--account=short", "--time=11", user="carol")
    slurm.await_job(slurm.submit("true", "--account=short", "--time=10", user="carol"))
    unnamed = slurm.submit("true", "--account=short", "--hold", user="carol")
    assert slurm.job_field(unnamed, "TimeLimit") == "00:10:00", "a job that names no time gets what is allowed"
    slurm.await_reason(longer, "AssocMaxWallDurationPerJobLimit")


def test_more_jobs_than_may_be_queued_are_refused(slurm: SlurmOnKubernetes) -> None:
    for _ in range(2):
        slurm.submit("sleep 600", "--account=few", user="carol")
    said = slurm.refusal("--account=few", user="carol")
    assert "AssocMaxSubmitJobLimit" in said
    assert "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)" in said


def test_only_declared_accounts_and_qos_are_accepted(slurm: SlurmOnKubernetes) -> None:
    assert "Invalid account" in slurm.refusal("--account=biology", user="alice")
    assert "Invalid qos" in slurm.refusal("--account=short", "--qos=high", user="carol")


def test_a_reservation_keeps_others_out_and_lets_its_users_in(slurm: SlurmOnKubernetes) -> None:
    start = datetime.now(UTC) + timedelta(hours=1)
    course = {
        "start": start.strftime("%Y-%m-%dT%H:%M:%S"), "duration": "20", "nodes": ["default-1"], "users": ["carol"],
    }  # fmt: skip
    slurm.change("reservations", {"course": course})
    try:
        assert "Access denied to requested reservation" in slurm.refusal("--reservation=course", user="bob")
        inside = slurm.submit("sleep 600", "--reservation=course", "--account=few", "--time=5", user="carol")
        outside = slurm.submit("sleep 600", "--nodelist=default-1", "--time=2:00:00", user="bob")
        slurm.await_reason(inside, "Reservation")
        slurm.await_reason(outside, "ReqNodeNotAvail,_May_be_reserved_for_other_job")
        beside = slurm.submit("hostname", "--time=2:00:00", "--output=beside.out", user="bob")
        slurm.await_job(beside)
        assert slurm.ssh("cat beside.out", user="bob") == "default-0\n"
        slurm.slurm("scontrol update reservation=course starttime=now duration=20")  # instead of an hour's wait
        slurm.await_job(inside, "RUNNING")
        assert slurm.job_field(inside, "NodeList") == "default-1"
        assert slurm.job_state(outside) == "PENDING"
    finally:
        slurm.slurm("scancel --state=pending; scancel --state=running; scontrol delete reservation=course")


def test_doctor_says_for_which_limit_a_job_waits(slurm: SlurmOnKubernetes) -> None:
    waits = {
        "AssocMaxJobsLimit": ["--account=one_job"],
        "AssocGrpCpuLimit": ["--account=one_cpu"],
        "Licenses": ["--account=short", "--time=5", "--licenses=matlab"],
    }
    for options in waits.values():
        slurm.await_job(slurm.submit("sleep 600", "-n1", *options, user="carol"), "RUNNING")
    told = {}
    for reason, options in waits.items():
        job = slurm.submit("true", "-n1", *options, user="carol")
        slurm.await_reason(job, reason)
        told[reason] = first(slurm, "job", job)
    causes = {reason: said["cause"].partition(" waits: ")[2] for reason, said in told.items()}
    assert causes == {reason: meaning(reason, reason).words for reason in waits}
    assert {said["severity"] for said in told.values()} == {"note"}
    assert findings(slurm) == []
