"""What a site says of the tests, what is read from Slurm and asked of it, and a node's last results there.

The listings were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`, `(JOB_INFO)`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from images.common.command import TIMED_OUT
from images.common.command import Result as Done
from images.common.health.contract import Result, Status
from images.common.health.slurm import SlurmError
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import NodeView, Settings, Submit
from images.health.node_tests.results import KEY, Record, decode, encode, forgotten, since
from images.health.node_tests.slurm import TestSlurm
from images.health.verdict import fail, not_checked, ok, warn
from tests.fakes.commands import FakeRunner

AT = 1_795_000_000
PAIR = "with w-3: busbw 12 GB/s (at least 300 expected)"
RECORDS = {
    "cpu": Record(at=AT, result=Result(status=Status.OK, message="events 5100 events/s")),
    "nccl-node": Record(at=AT + 7, result=fail("hardware", "busbw 212 GB/s")),
    "nccl-pair": Record(at=AT + 9, result=warn("hardware", PAIR)),
    "memory": Record(at=AT + 4, result=not_checked("sysbench: No such file or directory")),
}


def test_it_is_one_line_of_json_that_people_can_read() -> None:
    extra = encode({"nccl-pair": RECORDS["nccl-pair"], "cpu": RECORDS["cpu"]}, "")
    assert json.loads(extra) == {
        KEY: "2026-11-18T11:06:40Z ok cpu: events 5100 events/s | "
        f"2026-11-18T11:06:49Z warn nccl-pair [hardware]: {PAIR}"
    }
    assert "\n" not in extra


def test_what_others_keep_there_stays() -> None:
    extra = encode(RECORDS, '{"rack": "r7", "health_tests": "old"}')
    assert json.loads(extra)["rack"] == "r7"
    assert decode(extra) == RECORDS
    again = encode(RECORDS, encode(RECORDS, "the admin's words"))
    assert json.loads(again)["note"] == "the admin's words"
    assert decode(again) == RECORDS


def test_what_is_not_understood_is_left_out_and_the_rest_stays() -> None:
    for extra in ("words", "[]", "null", '{"health_tests": 7}', '{"health_tests": "a | b"}'):
        assert decode(extra) == {}
    for part in (
        "2026-11-18T11:06:40Z fine cpu: x",
        "2026-19-18T11:06:40Z ok cpu: x",
        "2026-11-18T11:06:40Z fail cpu [somebody]: x",
        "2026-11-18T11:06:40Z fail : x",
    ):
        assert set(decode(json.dumps({KEY: f"{part} | 2026-11-18T11:06:44Z ok memory: y"}))) == {"memory"}
    line = "2026-11-18T11:06:49Z warn nccl-pair [hardware] (failed with w-1@2026-11-18T11:06:41Z): of a former version"
    assert decode(json.dumps({KEY: line}))["nccl-pair"].result.status is Status.WARN


def test_what_is_forgotten_is_gone_and_older_runs_count_no_more() -> None:
    extra = forgotten(encode(RECORDS, '{"rack": "r7"}'), AT + 20)
    assert (decode(extra), since(extra), json.loads(extra)["rack"]) == ({}, AT + 20, "r7")
    assert since(encode(RECORDS, extra)) == AT + 20
    assert since("words") == 0


def test_no_message_breaks_another_result() -> None:
    evil = "x | 2026-11-18T11:06:40Z fail b [hardware]: y\nz (failed with w-1@2026-11-18T11:06:41Z): \u2028"
    found = decode(encode({"a": Record(at=AT, result=warn("node", evil)), "b": Record(at=AT, result=ok())}, ""))
    assert set(found) == {"a", "b"}
    assert found["a"].result.fault == "node"
    assert found["b"] == Record(at=AT, result=ok())


def test_nothing_has_to_be_said_and_what_a_newer_stack_file_may_say_is_passed_over() -> None:
    usual = Settings.parse({})
    assert [test.name for test in usual.tests] == [name for name in TESTS if name != "dcgm-r3"]
    assert (str(usual.max_under_test), usual.directory, usual.mpi) == ("10%", "/var/tmp", "pmix")
    said = Settings.parse({"tests": ["cpu-speed", "a-new-one"], "intervals": {"a-new-one": 900}, "more": 1})
    assert [test.name for test in said.tests] == ["cpu-speed"]


def test_the_pool_is_the_feature_that_names_one() -> None:
    node = {"name": "a", "state": ["IDLE"], "active_features": ["avx", "pool-b"], "partitions": ["main"]}
    runner = FakeRunner({"scontrol show nodes --json": Done(code=0, stdout=json.dumps({"nodes": [node]}))})
    for named, pool in ((["pool-a", "pool-b"], "pool-b"), ([], "avx,pool-b")):
        (view,) = TestSlurm(runner=runner, settings=Settings.parse({"infiniband": named})).nodes()
        assert (view.pool, view.is_in(())) == (pool, True)


def test_no_answer_or_garbage_is_an_error_and_never_an_empty_cluster() -> None:
    for code, text in [(1, '{"jobs": []}'), (TIMED_OUT, ""), (0, "x"), (0, "[]"), (0, '{"jobs": null}')]:
        answer = Done(code=code, stdout=text, stderr="down")
        slurm = TestSlurm(runner=FakeRunner({"": answer}), settings=Settings.parse({}))
        with pytest.raises(SlurmError):
            slurm.jobs()
        if code:
            with pytest.raises(SlurmError, match="down"):
                slurm.wanted_partitions()


def submitted(wish: Submit, **settings: Any) -> list[str]:
    seen: list[list[str]] = []

    def note(argv: Any) -> Done:
        seen.append(list(argv))
        return Done(code=0, stdout="18\n")

    runner = FakeRunner({"sbatch": note})
    assert TestSlurm(runner=runner, settings=Settings.parse(settings)).submit(wish).ok
    assert set(runner.environments[0] or {}) <= {"PATH", "SLURM_CONF"}
    return seen[0]


def node(name: str, gpus: int = 0) -> NodeView:
    return NodeView(name=name, states=frozenset({"IDLE"}), partitions=("main", "debug"), gres=f"gpu:{gpus}")


def test_a_test_is_a_short_job_of_the_lowest_priority_that_has_its_nodes_alone() -> None:
    argv = submitted(Submit(test=TESTS["cpu-speed"], nodes=(node("w-0"),)))
    assert {"--exclusive", "--no-requeue", "--nice=2147483645", "--time=2", "--nodelist=w-0", "--nodes=1"} <= set(argv)
    assert {"--job-name=health-cpu-speed:w-0", "--partition=main", "--mem=0", "--output=/dev/null"} <= set(argv)
    assert not any(option.startswith(("--gpus", "--account", "--qos", "--reservation")) for option in argv)
    assert argv[-2].endswith("/node_tests/on_node.py")
    spec = json.loads(argv[-1])
    assert spec["argv"][:3] == ["sysbench", "cpu", "--threads={cpus}"]
    assert (spec["keep"], spec["directory"]) == (TESTS["cpu-speed"].keep, "/var/tmp")


def test_a_pair_has_all_gpus_of_both_and_what_the_site_says() -> None:
    site = {"account": "ops", "qos": "low", "partition": "tests", "nccl_tests": "/opt/reduce", "mpi": "pmi2"}
    argv = submitted(Submit(test=TESTS["nccl-pair"], nodes=(node("w-0", 8), node("w-1", 8))), **site)
    assert {"--nodelist=w-0,w-1", "--nodes=2", "--gpus-per-node=8", "--time=4"} <= set(argv)
    assert {"--account=ops", "--qos=low", "--partition=tests"} <= set(argv)
    command = json.loads(argv[-1])["argv"]
    assert command[:5] == ["env", "NCCL_ALGO=Ring", "srun", "--mpi=pmi2", "--nodes=2"]
    assert {"--ntasks-per-node=8", "/opt/reduce"} <= set(command)
