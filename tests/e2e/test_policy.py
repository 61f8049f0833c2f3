"""A cluster that teams share: who goes first, who waits, what is refused; declared in the stack file, seen by its users
from login nodes. Changes by hand do not last. Preemption and licenses: tests/slurm/test_scheduling.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.harness import SlurmOnKubernetes, make_key, wait_until
from tests.stacks import dev

ALL = "-N2 -n4"
"""All CPUs of both nodes."""

QOS = ["normal", "high"]

POLICY: dict[str, Any] = {
    "accounts": {
        "physics": {"fairshare": 3, "qos": QOS},
        "biology": {"fairshare": 1, "qos": QOS},
        "one_cpu": {"grp_tres": {"cpu": 1}},
        "one_job": {"max_jobs": 1},
        "short": {"max_wall": "10"},
        "few": {"max_submit_jobs": 2},
    },
    "qos": {"high": {"priority": 100}},
    "slurm": {"settings": {**dev()["slurm"]["settings"], "PriorityCalcPeriod": 1}},
}

USERS = {"alice": ["physics"], "bob": ["biology"], "carol": ["one_cpu", "one_job", "short", "few"]}


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A cluster of its own, with three users in several accounts."""
    directory = tmp_path_factory.mktemp("policy")
    key = make_key(directory / "key")
    users = {
        name: {"uid": 10001 + number, "ssh_authorized_keys": [key], "accounts": accounts}
        for number, (name, accounts) in enumerate(USERS.items())
    }
    sections = dev() | POLICY | {"cluster": {"namespace": "e2e-policy"}}
    sections["login"] = {"size": 1, "service_type": "ClusterIP"}
    with own_cluster(ENGINES[0], directory, sections, "default-0", "default-1", users=users) as cluster:
        yield cluster


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


def policy(slurm: SlurmOnKubernetes) -> Any:
    """What Slurm has, for comparison."""
    columns = "account,user,parentname,share,grptres,comment"
    lists = (f"assoc wopl format={columns}", "qos format=name,priority,description", "user")
    return [slurm.slurm(f"sacctmgr --noheader --parsable2 list {what}").splitlines() for what in lists]


def test_a_change_by_hand_is_shown_by_preview_and_undone_by_up(slurm: SlurmOnKubernetes) -> None:
    before = policy(slurm)
    slurm.slurm("sacctmgr --immediate modify account where name=physics set fairshare=77")
    slurm.slurm("sacctmgr --immediate add account handmade")

    shown = slurm.preview()["policy"]
    done = slurm.up()

    kept = "! account handmade was made by hand: kept (accounting.prune: true removes it)"
    assert shown["changes"] == ["~ account physics: fairshare 77 => 3"]
    assert kept in shown["notes"]
    assert "~ account physics: fairshare 77 => 3" in done.stdout
    assert kept in done.stdout
    slurm.slurm("sacctmgr --immediate delete account where name=handmade")
    assert policy(slurm) == before


def test_what_slurm_refuses_of_a_policy_is_told_and_the_next_up_goes_on(slurm: SlurmOnKubernetes) -> None:
    """Somebody's default QOS may neither go nor be taken from what the account allows."""
    before, sections = policy(slurm), slurm.sections
    slurm.slurm("sacctmgr --immediate add user bob account=physics defaultqos=high")
    accounts = sections["accounts"] | {"physics": {"fairshare": 44}, "biology": {"fairshare": 1}}
    slurm.sections = {**sections, "accounts": accounts, "qos": {}}

    done = slurm.up(check=False)

    slurm.sections = sections
    assert done.returncode != 0
    assert "while doing: " in done.stdout + done.stderr
    assert "44" in slurm.slurm("sacctmgr --noheader list assoc where account=physics user= format=share").split()
    slurm.slurm("sacctmgr --immediate delete user where name=bob account=physics")
    slurm.up()
    assert policy(slurm) == before


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


@pytest.mark.parametrize(("account", "reason"), [("one_cpu", "AssocGrpCpuLimit"), ("one_job", "AssocMaxJobsLimit")])
def test_a_job_above_a_limit_of_what_may_run_waits(slurm: SlurmOnKubernetes, account: str, reason: str) -> None:
    first, second = (slurm.submit("sleep 600", "-n1", f"--account={account}", user="carol") for _ in range(2))
    slurm.await_job(first, "RUNNING")
    slurm.await_reason(second, reason)
    slurm.ssh(f"scancel {first}", user="carol")
    slurm.await_job(second, "RUNNING")


def test_only_declared_accounts_and_qos_are_accepted(slurm: SlurmOnKubernetes) -> None:
    assert "Invalid account" in slurm.refusal("--account=biology", user="alice")
    assert "Invalid qos" in slurm.refusal("--account=short", "--qos=high", user="carol")


def test_a_reservation_keeps_others_out_and_lets_its_users_in(slurm: SlurmOnKubernetes) -> None:
    start = datetime.now(UTC) + timedelta(hours=1)
    words = f"starttime={start:%Y-%m-%dT%H:%M:%S} duration=20 nodes=default-1 users=carol"
    slurm.slurm(f"scontrol create reservation reservationname=course {words}")
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
