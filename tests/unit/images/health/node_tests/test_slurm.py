"""What is read from Slurm and asked of it.

The listings were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`, `(JOB_INFO)`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from images.common.command import TIMED_OUT, Result
from images.health.node_tests.plan import NodeView, Submit, TestJob, Waiting
from images.health.node_tests.settings import parse
from images.health.node_tests.slurm import Ended, TestSlurm
from images.health.slurm import SlurmError
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.node_tests.views import CPU, NOW, node

USUAL = parse({})


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def nodes_of(*nodes: dict[str, Any], pools: frozenset[str] = frozenset()) -> list[NodeView]:
    runner = FakeRunner({"scontrol show nodes --json": Result(code=0, stdout=json.dumps({"nodes": nodes}))})
    return list(TestSlurm(runner=runner, settings=replace(USUAL, infiniband=pools)).nodes())


def jobs_of(*jobs: dict[str, Any]) -> tuple[list[TestJob], list[Ended]]:
    runner = FakeRunner({"squeue --me --states=all --json": Result(code=0, stdout=json.dumps({"jobs": jobs}))})
    return TestSlurm(runner=runner, settings=USUAL).jobs()


def job(**fields: Any) -> dict[str, Any]:
    usual = {
        "job_id": 17,
        "name": "health-cpu-speed:w-0",
        "job_state": ["RUNNING"],
        "submit_time": number(NOW - 9),
        "start_time": number(NOW - 8),
        "comment": "",
    }
    return {**usual, **fields}


def test_the_pool_is_the_feature_that_names_one_and_of_which_little_is_known_is_not_idle() -> None:
    features = {"name": "a", "state": ["IDLE"], "active_features": ["avx", "pool-b"]}
    assert nodes_of(features, pools=frozenset({"pool-a", "pool-b"}))[0].pool == "pool-b"
    assert nodes_of(features)[0].pool == "avx,pool-b"
    (view,) = nodes_of({"name": "a", "state": "IDLE+DRAIN"}, {"state": ["IDLE"]}, {"name": "b"})
    assert (view.name, view.states, view.is_idle) == ("a", frozenset({"IDLE", "DRAIN"}), False)
    assert not nodes_of({"name": "a", "state": ["IDLE"]})[0].is_idle, "in no partition"


def test_what_has_ended_tells_how() -> None:
    for states in (["COMPLETED"], ["NODE_FAIL"], ["TIMEOUT", "COMPLETING"]):
        live, (ended,) = jobs_of(job(job_state=states, comment="told", name="health-nccl-pair:w-0,w-1"))
        assert live == []
        told = Ended(number=17, test="nccl-pair", nodes=("w-0", "w-1"), began=NOW - 8, state=states[0], comment="told")
        assert ended == told


def test_what_was_stopped_or_is_no_test_is_as_if_it_had_not_been() -> None:
    others: list[dict[str, Any]] = [{"job_state": ["CANCELLED"], "comment": "told"}, {"job_state": ["PREEMPTED"]}]
    others += [{"job_state": ["BOOT_FAIL"], "start_time": number(0)}, {"job_id": None}]
    others += [{"name": name} for name in ("train", "health-cpu-speed", "my-health-cpu-speed:w-0")]
    for fields in others:
        assert jobs_of(job(**fields)) == ([], []), fields


def test_users_who_wait_are_all_but_the_tests() -> None:
    down = "ReqNodeNotAvail, UnavailableNodes:w-[0-1]"
    text = f"17|main|Resources\n18|main,gpus|Priority\n 19 |x|{down}\nslurm: error: odd\n\n"
    runner = FakeRunner({"squeue --all --noheader --states=PENDING": Result(code=0, stdout=text)})
    assert TestSlurm(runner=runner, settings=USUAL).waiting([17]) == [
        Waiting(partitions=("main", "gpus"), reason="Priority"),
        Waiting(partitions=("x",), reason=down),
    ]


def test_no_answer_or_garbage_is_an_error_and_never_an_empty_cluster() -> None:
    for code, text in [(1, '{"jobs": []}'), (TIMED_OUT, ""), (0, "x"), (0, "[]"), (0, '{"jobs": null}')]:
        answer = Result(code=code, stdout=text, stderr="down")
        slurm = TestSlurm(runner=FakeRunner({"": answer}), settings=USUAL)
        with pytest.raises(SlurmError):
            slurm.jobs()
        if code:
            with pytest.raises(SlurmError, match="down"):
                slurm.waiting([])


def submitted(wish: Submit, **account: str) -> list[str]:
    seen: list[list[str]] = []

    def note(argv: Any) -> Result:
        seen.append(list(argv))
        return Result(code=0, stdout="18\n")

    runner = FakeRunner({"sbatch": note})
    assert TestSlurm(runner=runner, settings=parse(account)).submit(wish).ok
    assert set(runner.environments[0] or {}) <= {"PATH", "SLURM_CONF"}
    return seen[0]


def test_a_test_is_a_short_job_of_the_lowest_priority_that_has_its_nodes_alone() -> None:
    argv = submitted(Submit(test=CPU, nodes=(node("w-0"),), partition="main"))
    assert {"--exclusive", "--no-requeue", "--nice=2147483645", "--time=2", "--nodelist=w-0", "--nodes=1"} <= set(argv)
    assert {"--job-name=health-cpu-speed:w-0", "--partition=main", "--mem=0", "--output=/dev/null"} <= set(argv)
    assert not any(option.startswith(("--gpus", "--account", "--qos")) for option in argv)
    assert argv[-2].endswith("/node_tests/on_node.py")
    spec = json.loads(argv[-1])
    assert spec["argv"][0] == "sysbench"
    assert (spec["keep"], spec["seconds"], spec["directory"]) == (CPU.keep, CPU.seconds, "/var/tmp")
