"""What a site says of the tests, what is read from Slurm and asked of it, and a node's last results there.

The listings were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`, `(JOB_INFO)`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from images.common.command import TIMED_OUT
from images.common.command import Result as Done
from images.common.health.slurm import Record, SlurmError
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.slurm import Settings, TestSlurm
from tests.fakes.commands import FakeRunner


def test_no_answer_or_garbage_is_an_error_and_never_an_empty_cluster() -> None:
    for code, text in [(1, '{"jobs": []}'), (TIMED_OUT, ""), (0, "x"), (0, '{"jobs": null}')]:
        answer = Done(code=code, stdout=text, stderr="down")
        with pytest.raises(SlurmError):
            TestSlurm(runner=FakeRunner({"": answer}), settings=Settings.parse({})).jobs()


def submitted(test: str, gpus: int = 0, **settings: Any) -> list[str]:
    seen: list[list[str]] = []

    def note(argv: Any) -> Done:
        seen.append(list(argv))
        return Done(code=0, stdout="18\n")

    runner = FakeRunner({"sbatch": note})
    node = Record(name="w-0", states=frozenset({"IDLE"}), partitions=("main", "debug"), gres=f"gpu:{gpus}")
    assert TestSlurm(runner=runner, settings=Settings.parse(settings)).submit(TESTS[test], node).ok
    assert set(runner.environments[0] or {}) <= {"PATH", "SLURM_CONF"}
    return seen[0]


def test_a_test_is_a_short_job_of_the_lowest_priority_that_has_its_node_alone() -> None:
    argv = submitted("cpu-speed")
    assert {"--exclusive", "--no-requeue", "--nice=2147483645", "--time=2", "--nodelist=w-0", "--nodes=1"} <= set(argv)
    assert {"--job-name=health-cpu-speed:w-0", "--partition=main", "--mem=0", "--output=/dev/null"} <= set(argv)
    assert not any(option.startswith(("--gpus", "--account", "--reservation")) for option in argv)
    assert argv[-2].endswith("/node_tests/on_node.py")
    spec = json.loads(argv[-1])
    assert spec["argv"][:3] == ["sysbench", "cpu", "--threads={cpus}"]
    assert (spec["figures"].keys(), spec["faults"], spec["directory"]) == ({"events"}, "", "/var/tmp")


def test_a_test_of_gpus_has_all_of_the_node_and_the_tests_account() -> None:
    argv = submitted("nccl-infiniband", 8, account="health")
    assert {"--gpus-per-node=8", "--account=health"} <= set(argv)
    command = json.loads(argv[-1])["argv"]
    assert command[:2] == ["env", "NCCL_P2P_DISABLE=1"]
    assert command[-2:] == ["-g", "8"]
