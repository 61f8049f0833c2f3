"""The policy program with real slurmdbd and slurmctld: from nothing, every kind of change, and on after a refusal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from config import load_config
from images.accounting.document import load
from images.accounting.plan import plan
from images.accounting.policy import bring_in_line
from images.accounting.sacctmgr import Slurm, read
from images.common.command import Result, Runner
from images.common.wait import Clock
from slurm.policy import environment, policy_document
from tests import stacks
from tests.policies import documents, matches
from tests.slurm.accounting import AccountingSandbox, sacctmgr
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config, add_accounts, identity
from tests.slurm.pod import HANG_SECONDS, LIBEXEC, wait_until

EXAMPLES = 5
"""Of two policies each: some twenty seconds of a real slurmdbd."""

BY_HAND = ("add qos byhand", "add account byhand", "add user alice account=byhand")

NOTHING = {"version": 1, "prune": True, "accounts": {}, "users": {}, "qos": {}}

PEOPLE = {"alice": 10001, "bob": 10002, "carol": 10003}

FIRST: dict[str, Any] = {
    "accounts": {
        "ml": {
            "fairshare": 10, "grp_tres": {"cpu": 100, "mem": 1025, "gres/gpu": 4}, "description": "Machine Learning",
            "max_wall": "1-0", "qos": ["normal", "high"], "default_qos": "normal",
        },
        "vision": {"parent": "ml", "fairshare": 3, "qos": ["normal", "high"], "default_qos": "high"},
        "physics": {"fairshare": 20},
    },
    "qos": {
        "high": {
            "priority": 100, "preempt": ["low"], "preempt_mode": "requeue", "flags": ["DenyOnLimit", "NoDecay"],
            "max_tres_per_user": {"cpu": 10, "mem": 3000}, "limit_factor": 1.5,
        },
        "low": {"usage_factor": 0.5, "preempt_exempt_time": "0:30", "grace_time": 30, "max_wall": "90"},
    },
    "users": {
        "alice": {
            "uid": 10001, "accounts": {"ml": {"fairshare": 3, "default_qos": "high"}, "vision": {}},
            "default_account": "vision", "admin_level": "operator",
        },
        "bob": {"uid": 10002, "accounts": ["physics"]},
        "carol": {"uid": 10003, "accounts": {"physics": {"fairshare": "parent", "grp_jobs": 4, "priority": 7}}},
    },
    "preemption": {"type": "qos"},
}  # fmt: skip

SECOND: dict[str, Any] = {
    "accounts": {
        "ml": {"fairshare": 11, "grp_tres": {"cpu": 90}, "max_jobs": 0, "description": "machines"},
        "vision": {"parent": "physics", "fairshare": 3, "qos": ["normal", "low"]},
        "physics": {"fairshare": 20, "grp_submit_jobs": 5},
        "bio": {"parent": "vision"},
    },
    "qos": {
        "low": {"usage_factor": 0.75, "max_wall": "1-0", "min_prio_threshold": 3},
        "fast": {"preempt": ["low"], "grp_tres_mins": {"cpu": 1000}},
    },
    "users": {
        "alice": {"uid": 10001, "accounts": {"ml": {}, "bio": {"max_wall": "30"}}, "default_account": "ml"},
        "carol": {"uid": 10003, "accounts": {"physics": {"fairshare": 5}, "vision": {}}, "default_account": "vision"},
    },
    "preemption": {"type": "qos"},
}
"""Another parent, other limits, a QOS less that was somebody's default, a user less, other default accounts."""


def document(sections: dict[str, Any], **more: Any) -> str:
    gpus = {"worker_nodes": {"default": {"size": 1, "resources": {"cpus": 2, "memory": "1Gi", "gpus": 1}}}}
    return policy_document(load_config({**stacks.dev(), **gpus, **sections, **more}))


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """A cluster with accounting, one worker and three people."""
    known = identity(PEOPLE, "/tmp")
    extra = "AccountingStorageTRES=gres/gpu\nGresTypes=gpu\nAccountingStorageEnforce=associations,limits,qos\n"
    config = accounting_config(slurm_version, extra, **known)
    sandbox = slurm_cluster(slurm_version, config=config, workers=1, kind=AccountingSandbox)
    add_accounts(known, sandbox.pods["default-0"].root)
    return sandbox


@pytest.fixture(autouse=True)
def clean(cluster: AccountingSandbox) -> Iterator[None]:
    """Each test starts without any policy."""
    yield
    cluster.run("scancel $(squeue --noheader --format=%i)")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), lambda: cluster.run("squeue").stdout)
    apply(cluster, document({"users": {}}, accounting={"prune": True}))


def run(cluster: AccountingSandbox, wanted: str, *options: str) -> subprocess.CompletedProcess[str]:
    names = {**environment(load_config(stacks.dev())), "CLUSTER_NAME": "sandbox"}
    return cluster.pods["slurmdbd-0"].run(
        [f"{LIBEXEC}/policy", *options, "-"], stdin=wanted, env=names, timeout=300
    )  # fmt: skip


def apply(cluster: AccountingSandbox, wanted: str) -> list[str]:
    """What it did, line by line."""
    done = run(cluster, wanted)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("policy: ") for line in done.stdout.splitlines()]


def everything(cluster: AccountingSandbox) -> str:
    """All that slurmdbd has."""
    columns = (
        "format=cluster,account,user,parentname,share,grptres,grpjobs,grpsubmit,maxwall,qos,defaultqos,comment,priority"
    )
    lists = (f"list assoc wopl {columns}", "list qos", "list user", "list account format=account,descr,org")
    printed = [sacctmgr(cluster, what).stdout for what in lists]
    assert all(printed), printed
    return "\n".join("\n".join(sorted(text.splitlines())) for text in printed)


def in_pod(cluster: AccountingSandbox) -> Runner:
    """Slurm's commands where the policy program runs."""

    def run(argv: Sequence[str], *, timeout: float = HANG_SECONDS, env: Mapping[str, str] | None = None) -> Result:
        conf = {"SLURM_CONF": "/config/slurm/slurm.conf"}
        done = cluster.run(argv, pod="slurmdbd-0", timeout=timeout, env={**conf, **(env or {})})
        return Result(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    return run


def association(cluster: AccountingSandbox, account: str) -> list[str]:
    columns = "format=share,grptres,maxjobs,maxwall,qos,defaultqos,parentname"
    return sacctmgr(cluster, f"list assoc wopl where account={account} user= {columns}").stdout.strip().split("|")


@pytest.mark.in_gate
def test_a_policy_is_made_from_nothing_and_the_second_time_nothing_changes(cluster: AccountingSandbox) -> None:
    planned = run(cluster, document(FIRST), "--plan")

    did = apply(cluster, document(FIRST))

    changes = [line for line in did if not line.endswith("commands done")]  # which a slow machine gets to see
    assert json.loads(planned.stdout)["changes"] == changes[:-1]
    assert "+ account vision" in did
    expected = ["10", "cpu=100,gres/gpu=4,mem=1025M", "", "1-00:00:00", "high,normal", "normal", "root"]
    assert association(cluster, "ml") == expected
    assert "alice|vision|Operator" in sacctmgr(cluster, "list user").stdout
    before = everything(cluster)
    assert apply(cluster, document(FIRST)) == ["nothing to change"]
    assert everything(cluster) == before


@pytest.mark.in_gate
def test_every_kind_of_change_is_made_and_taken_back(cluster: AccountingSandbox) -> None:
    apply(cluster, document(FIRST))
    before = everything(cluster)

    did = apply(cluster, document(SECOND))

    assert "- user bob" in did
    assert "- qos high" in did
    assert association(cluster, "ml") == ["11", "cpu=90", "0", "", "", "", "root"]
    assert association(cluster, "vision")[4:] == ["low,normal", "", "physics"]
    assert "carol|vision|None" in sacctmgr(cluster, "list user").stdout
    assert apply(cluster, document(SECOND)) == ["nothing to change"]
    apply(cluster, document(FIRST))
    assert everything(cluster) == before


def test_a_user_who_leaves_with_jobs_stays_until_they_end_and_gets_no_new_ones(cluster: AccountingSandbox) -> None:
    apply(cluster, document(FIRST))
    asked = "sbatch --parsable --account=physics --output=/dev/null --chdir=/tmp --wrap 'sleep 600'"
    as_bob = f"setpriv --reuid=10002 --regid=10002 --clear-groups {asked}"
    submitted = cluster.run(as_bob)
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    state = f"squeue --noheader --format=%T --jobs={job}"
    wait_until(lambda: cluster.run(state).stdout.strip() == "RUNNING", lambda: cluster.run("squeue").stdout)
    active = "sacct --allusers --allocations --noheader --parsable2 --state=RUNNING --format=jobid"
    there = {"SLURM_CONF": "/config/slurm/slurm.conf"}
    wait_until(lambda: job in cluster.run(active, pod="slurmdbd-0", env=there).stdout, "slurmdbd to hear of the job")

    did = apply(cluster, document(SECOND))

    busy = f"left the stack file, but jobs wait or run with it (job {job})"
    kept = f"! user bob in physics {busy}: kept, without new jobs"
    assert [line for line in did if line.startswith(kept)], did
    assert "bob|physics|0" in sacctmgr(cluster, "list assoc format=user,account,maxsubmit").stdout
    assert apply(cluster, document(SECOND))[-1] == "nothing to change"
    assert cluster.run(state).stdout.strip() == "RUNNING"
    assert "job submit limit" in cluster.run(as_bob).stderr

    cluster.run(f"scancel {job}")
    wait_until(lambda: "- user bob" in run(cluster, document(SECOND), "--plan").stdout, "the job to be over")
    apply(cluster, document(SECOND))
    assert "bob|" not in sacctmgr(cluster, "list assoc format=user,account").stdout


@settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate])
@given(policies=st.lists(documents(), min_size=2, max_size=2))
def replay(cluster: AccountingSandbox, policies: list[dict[str, Any]]) -> None:
    """Have policies made one after the other, and something by hand between them."""
    slurm = Slurm(runner=in_pod(cluster), cluster="sandbox")
    for number, document in enumerate([*policies, NOTHING]):
        for what in BY_HAND if number == 1 else ():
            assert sacctmgr(cluster, what).returncode == 0, what
        asked = load(json.dumps(document))
        bring_in_line(slurm, asked, lambda _: None, Clock())
        there = read(slurm)
        assert matches(there, asked.wanted)
        found = ("byhand",) in there.qos, ("byhand",) in there.accounts, ("alice", "byhand", "") in there.associations
        assert set(found) == {number == 1 and not asked.prune}
        assert plan(there, asked.wanted, prune=asked.prune).changes == ()


def test_any_policy_becomes_any_other(cluster: AccountingSandbox) -> None:
    replay(cluster)
