"""What is read from Slurm and asked of it.

The listings were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`, `(JOB_INFO)`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from images.common.command import TIMED_OUT, Result
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.plan import NodeView, Submit
from images.health.node_tests.settings import parse
from images.health.node_tests.slurm import TestSlurm
from images.health.slurm import SlurmError
from tests.fakes.commands import FakeRunner


def test_the_pool_is_the_feature_that_names_one() -> None:
    node = {"name": "a", "state": ["IDLE"], "active_features": ["avx", "pool-b"], "partitions": ["main"]}
    runner = FakeRunner({"scontrol show nodes --json": Result(code=0, stdout=json.dumps({"nodes": [node]}))})
    for named, pool in ((["pool-a", "pool-b"], "pool-b"), ([], "avx,pool-b")):
        (view,) = TestSlurm(runner=runner, settings=parse({"infiniband": named})).nodes()
        assert (view.pool, view.is_in(())) == (pool, True)


def test_no_answer_or_garbage_is_an_error_and_never_an_empty_cluster() -> None:
    for code, text in [(1, '{"jobs": []}'), (TIMED_OUT, ""), (0, "x"), (0, "[]"), (0, '{"jobs": null}')]:
        answer = Result(code=code, stdout=text, stderr="down")
        slurm = TestSlurm(runner=FakeRunner({"": answer}), settings=parse({}))
        with pytest.raises(SlurmError):
            slurm.jobs()
        if code:
            with pytest.raises(SlurmError, match="down"):
                slurm.wanted_partitions()


def submitted(wish: Submit, **settings: Any) -> list[str]:
    seen: list[list[str]] = []

    def note(argv: Any) -> Result:
        seen.append(list(argv))
        return Result(code=0, stdout="18\n")

    runner = FakeRunner({"sbatch": note})
    assert TestSlurm(runner=runner, settings=parse(settings)).submit(wish).ok
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
