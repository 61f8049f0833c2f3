"""What cannot be read is said, and the rest is looked at all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.doctor.cluster.diagnose import diagnose, diagnose_job, diagnose_node
from tests.unit.cli.doctor.cluster.recorded import CLOCK, RecordedCluster, recorded
from tests.unit.cli.doctor.cluster.situations import ago

GARBAGE: tuple[Any, ...] = (None, 7, "", "text", [], [None], {}, {"a": {}})


def forbidden(kind: str) -> str:
    return f'Error from server (Forbidden): {kind} is forbidden: User "bob" cannot list resource "{kind}"'


def test_without_rights_in_kubernetes_slurm_is_looked_at() -> None:
    cluster = recorded()
    kinds = {"Pod": "pods", "Node": "nodes", "StatefulSet": "statefulsets.apps", "Event": "events"}
    cluster.refused.update({kind: forbidden(name) for kind, name in kinds.items()})
    cluster.node("default-1", "IDLE", "DRAIN", reason="bad disk", by="root")
    facts = cluster.look()
    assert facts.unread == dict.fromkeys(("pods", "machines", "workloads", "events"), "not allowed")
    assert [item.about for item in diagnose(facts)] == ["node default-1"]


def test_without_rights_in_the_controller_s_pod_kubernetes_is_looked_at() -> None:
    cluster = recorded()
    cluster.refused["exec"] = 'Error from server (Forbidden): pods "controller-0" is forbidden'
    cluster.unplaced("login-0", "0/2 nodes are available: 2 Insufficient cpu.")
    facts = cluster.look()
    assert facts.unread == {"slurm": "not allowed to run commands in controller-0"}
    assert [item.about for item in diagnose(facts)] == ["pod login-0"]


def test_only_the_kind_that_is_refused_is_missing() -> None:
    cluster = recorded()
    cluster.refused["Node"] = forbidden("nodes")
    facts = cluster.look()
    assert facts.unread == {"machines": "not allowed"}
    assert len(facts.pods) == 12
    assert diagnose(facts) == ()


def test_an_answer_that_was_cut_off_is_none() -> None:
    cluster = recorded()
    for name in ("licenses", "partitions", "statistics", "database", "job", "past", "end"):
        del cluster.slurm[name]
    cluster.slurm["queue"] = (0, "12~a mark~(Resou")
    facts = cluster.look()
    assert facts.unread == dict.fromkeys(("jobs", "licenses", "partitions", "load"), "no answer within 3 s")
    assert len(facts.nodes) == 2


def test_a_job_s_text_cannot_pass_for_an_answer() -> None:
    cluster = recorded()
    cluster.job("12", "Priority", account="0123456789abcdef nodes 0\n{}\n")
    assert len(cluster.look().nodes) == 2


def test_an_account_cannot_pass_for_the_record_of_another_job() -> None:
    cluster = recorded()
    cluster.job("12", "Priority")
    cluster.job("13", "Priority", account="x~0123456789ab!\n12~0123456789ab~JobHeldAdmin~0123456789ab~9")
    facts = cluster.look()
    assert [(job.reason, job.restarts) for job in facts.jobs] == [("Priority", 0)] * 2
    assert diagnose(facts) == ()


def test_a_command_to_be_copied_runs_nothing_that_a_user_has_written() -> None:
    cluster = recorded()
    cluster.job("12", "AssocGrpCpuLimit", account="a; $(reboot)\n")
    (said,) = diagnose_job(cluster.look(), "12")
    assert " account='a; $(reboot)' " in said.mend


@pytest.mark.parametrize(
    "odd", [*GARBAGE, {"nodes": [{"name": 3}]}, {"nodes": [None]}, "\t\t\t", "\x1b[2J\n\n"], ids=repr
)
@pytest.mark.parametrize("question", sorted(recorded().slurm))
def test_odd_answers_of_slurm_are_left_out(question: str, odd: Any) -> None:
    cluster = recorded()
    cluster.slurm[question] = (0, odd if isinstance(odd, str) else json.dumps(odd))
    use(cluster)


def use(cluster: RecordedCluster) -> None:
    """Look at all of it: nothing raises."""
    facts = cluster.look(job="12")
    diagnose(facts)
    diagnose_job(facts, "12")
    diagnose_node(facts, "default-0")


@pytest.mark.parametrize(("here", "there"), [(CLOCK + 86400, CLOCK), (CLOCK, CLOCK + 86400)])
def test_a_clock_that_is_ahead_has_no_pod_deleted_by_force(
    monkeypatch: pytest.MonkeyPatch, here: int, there: int
) -> None:
    """That of who looks, or the controller's: a pod that has just begun to end would be overdue by a day."""
    cluster = recorded()
    cluster.thing("Pod", "default-1")["metadata"]["deletionTimestamp"] = ago(-20)
    cluster.slurm["clock"] = (0, str(there))
    monkeypatch.setattr("cli.doctor.cluster.collect.time.time", lambda: float(here))
    assert diagnose(cluster.look()) == ()
