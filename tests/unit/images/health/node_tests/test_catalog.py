"""Outputs of the tools: well, slow, garbage, empty, absent; what is sent of them, and what a platform is to reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result as Done
from images.common.health.contract import Result, Status
from images.common.health.slurm import Record
from images.health.checks import find_checks
from images.health.node_tests.catalog import TESTS, Expected, judge, load
from images.health.node_tests.on_node import comment_of
from images.health.node_tests.slurm import Settings, TestSlurm
from images.health.watch.decide import KUBERNETES
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import Like, outcomes, words

SAMPLES = Path(__file__).parent / "data"


def output(name: str) -> str:
    return (SAMPLES / name).read_text()


def result(name: str, text: str, *, code: int = 0, least: dict[str, float] | None = None) -> Result:
    """What comes of an output, the whole way: shortened on the node, sent as a comment, read and judged."""
    test = TESTS[name]
    expected: Expected = {"8x G": {name: least}} if least else {}
    return judge(test, comment_of(code, text, looked_for(name), "8x G"), "COMPLETED", expected, [])


def looked_for(name: str) -> dict[str, Any]:
    """What the job is told of a test."""
    test = TESTS[name]
    return {"figures": {name: one.pattern for name, one in test.figures.items()}, "faults": test.faults}


OUTPUTS = {
    "cpu-speed": ("sysbench-cpu.txt", {"events": 1599.22}),
    "memory-bandwidth": ("sysbench-memory.txt", {"write": 9983.30 * 2**20 / 1e9}),
    "filesystem-throughput": ("fio.txt", {"write": 819200 * 1024 / 1e6, "read": 481882 * 1024 / 1e6}),
    "nccl-node": ("nccl.txt", {"busbw": 474.845}),
}
"""What tools say, and the figures in it, in the unit that is declared."""


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_figure_is_judged_by_what_is_expected_and_one_that_is_not_sure_is_no_verdict(name: str) -> None:
    file, figures = OUTPUTS[name]
    text, least = output(file), {figure: value * 0.999 for figure, value in figures.items()}
    assert words(result(name, text, least=least)) == Like("ok: ...")
    slow = words(result(name, text, least={figure: value * 1.001 for figure, value in figures.items()}))
    assert slow == Like(f"fail [{TESTS[name].fault}]: ...expected)...")
    assert all(f"{figure} " in slow for figure in figures)
    assert words(result(name, text)) == Like("not checked: ...nothing is known to be expected of 8x G...")
    assert result(name, text, code=1, least=least).status == "not checked", "the tool ended with an error"


def test_garbage_is_not_checked_and_an_absent_tool_is_named() -> None:
    for name in TESTS:
        for text in ("", "\x00\xff", "events per second: nan"):
            assert result(name, text).status == "not checked", (name, text)
        absent = result(name, "tool: No such file or directory", code=127)
        assert words(absent) == "not checked: tool: No such file or directory"
    found = judge(TESTS["cpu-speed"], "somebody's comment", "FAILED", {}, [])
    assert words(found) == "not checked: its job ended as FAILED and told nothing"


WRONG = output("nccl.txt").replace("Out of bounds values : 0 OK", "Out of bounds values : 50 FAILED")
NO_SPACE = output("fio.txt").replace("fio-3.33;write;0;0;", "fio-3.33;write;0;28;")


@outcomes(
    "name, text, code",
    [
        ("fail [hardware]: ...values : 50 FAILED...", "nccl-node", WRONG, 0),
        ("not checked: ...", "filesystem-throughput", output("fio-error.txt"), 1),
        ("not checked: ...", "filesystem-throughput", NO_SPACE, 1),
    ],
)
def test_what_tools_say_of_faults(expected: str, name: str, text: str, code: int) -> None:
    assert words(result(name, text, code=code)) == Like(expected)


H100 = "8x NVIDIA H100 80GB HBM3"


def test_a_node_is_judged_by_what_is_published_and_what_the_site_says_counts_before_that() -> None:
    def judged(busbw: float, own: Expected, *pools: str) -> Status:
        comment = {"code": 0, "figures": {"busbw": [str(busbw)]}, "faults": [], "platform": H100}
        return judge(TESTS["nccl-node"], json.dumps(comment), "COMPLETED", load(own), pools).status

    own: Expected = {H100: {"nccl-node": {"busbw": 470}}, "big": {"nccl-node": {"busbw": 100.5}}}
    assert judged(420.0, {}) is Status.OK
    assert judged(419.9, {}) is Status.FAIL
    assert judged(460.0, own) is Status.FAIL
    assert judged(460.0, own, "avx", "big") is Status.OK


def test_no_test_has_the_name_of_a_check() -> None:
    """A check that is well would lift the drain of the test."""
    assert set(TESTS).isdisjoint({*find_checks(), KUBERNETES})


@pytest.mark.parametrize("character", ["\U0001f600", '"'])
def test_a_comment_is_never_longer_than_slurm_allows(character: str) -> None:
    text = "\n".join([character * 90] * 50)
    for pattern in (".*", "nothing"):
        wanted = {"figures": {"read": pattern, "write": pattern}, "faults": ".*"}
        assert len(comment_of(0, text, wanted, character * 300)) <= 1023


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


def test_a_test_of_gpus_has_all_of_the_node_and_the_tests_account() -> None:
    argv = submitted("nccl-infiniband", 8, account="health")
    assert {"--gpus-per-node=8", "--account=health"} <= set(argv)
    command = json.loads(argv[-1])["argv"]
    assert command[:2] == ["env", "NCCL_P2P_DISABLE=1"]
    assert command[-2:] == ["-g", "8"]
