"""Outputs of the tools: well, slow, garbage, empty, absent; what is sent of them, and what a platform is to reach."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from images.common.health.contract import Result, Status
from images.health.node_tests import on_node
from images.health.node_tests.catalog import (
    DATA,
    INFINIBAND,
    TESTS,
    Expected,
    NodeTest,
    figures_in,
    judge,
    load,
    minima_of,
)
from images.health.node_tests.on_node import kept, told
from images.health.node_tests.slurm import SCRIPT
from images.health.registry import find_checks
from images.health.watch.decide import KUBERNETES
from tests.unit.images.health.tables import Like, outcomes, words

SAMPLES = Path(__file__).parent / "data"
NOTHING: Expected = {}


def output(name: str) -> str:
    return (SAMPLES / name).read_text()


def result(name: str, text: str, *, code: int = 0, least: dict[str, float] | None = None) -> Result:
    """What comes of an output, the whole way: shortened on the node, sent as a comment, read and judged."""
    test = TESTS[name]
    expected = {platform: {name: least or {}} for platform in ("8x G", "8x G with InfiniBand")}
    return judge(test, told(code, text, test.keep, "8x G"), "COMPLETED", expected, platforms=[], infiniband=True)


OUTPUTS = {
    "cpu-speed": ("sysbench-cpu.txt", {"events": 1000.0}),
    "memory-bandwidth": ("sysbench-memory.txt", {"write": 1.0}),
    "filesystem-throughput": ("fio.txt", {"write": 100.0, "read": 100.0}),
    "nccl-node": ("nccl.txt", {"busbw": 420.0}),
    "nccl-pair": ("nccl.txt", {"busbw": 420.0}),
}
BILLION = 1000000000.0


def nothing_measured(text: str) -> str:
    """The output with each figure 0."""
    text = re.sub(r"(?m)^.*events per second.*$", "events per second: 0.00", text)
    text = re.sub(r"(?m)^.*MiB/sec.*$", "transferred (0 MiB/sec)", text)
    return re.sub("474.845|819200|481882", "0", text)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_figure_is_judged_by_what_is_expected_and_one_that_is_not_sure_is_no_verdict(name: str) -> None:
    file, least = OUTPUTS[name]
    text = output(file)
    well = result(name, text, least=least)
    assert words(well) == Like("ok: ...")
    slow = words(result(name, text, least=dict.fromkeys(least, BILLION)))
    assert slow == Like(f"fail [{TESTS[name].fault}]: ...(at least 1e+09 expected)...")
    assert all(f"{figure} " in slow for figure in least)
    assert words(result(name, text)) == Like("not checked: ...nothing is known to be expected of 8x G...")
    assert result(name, text, code=1, least=least).status == "not checked", "the tool ended with an error"
    assert result(name, nothing_measured(text), least=least).status == "not checked"
    if name != "filesystem-throughput":
        assert result(name, text + text.replace("write", "write2"), least=least).status == "not checked", "two figures"


def test_figures_are_those_of_the_tools_in_the_unit_that_is_declared() -> None:
    for name, text, figures in [
        ("memory-bandwidth", "transferred (1000.00 MiB/sec)", {"write": 1.048576}),
        ("nccl-node", output("nccl.txt"), {"busbw": 474.845}),
        ("filesystem-throughput", output("fio.txt"), {"write": 819200 * 1024 / 1e6, "read": 481882 * 1024 / 1e6}),
    ]:
        assert figures_in(TESTS[name], kept(text, TESTS[name].keep))[0] == pytest.approx(figures)
        assert sorted(figures) == sorted(TESTS[name].figures)


def test_garbage_is_not_checked_and_an_absent_tool_is_named() -> None:
    for name in TESTS:
        for text in ("", "3;3;3;3", "| | |", "\x00\xff", "events per second: nan"):
            for code in (0, 1):
                found = result(name, text, code=code)
                assert found.status == "not checked", (name, text, code)
                assert found.message
        absent = result(name, "tool: No such file or directory", code=127)
        assert words(absent) == "not checked: tool: No such file or directory"


WRONG = output("nccl.txt").replace("Out of bounds values : 0 OK", "Out of bounds values : 50 FAILED")
NO_SPACE = output("fio.txt").replace("fio-3.33;write;0;0;", "fio-3.33;write;0;28;")
INSTALLATION = output("dcgm3.txt").replace("| NVML Library              | Pass", "| NVML Library              | Fail")
PCIE = output("dcgm3.txt").replace(
    "| PCIe                      | Pass - All ", "| PCIe                      | Fail - GPU: 3 "
)


@outcomes(
    "name, text, code",
    [
        ("fail [hardware]: ...values : 50 FAILED...", "nccl-node", WRONG, 0),
        ("not checked: ...", "filesystem-throughput", output("fio-error.txt"), 1),
        ("not checked: ...", "filesystem-throughput", NO_SPACE, 1),
        ("ok: passed 10 tests passed", "dcgm-r2", output("dcgm3.txt"), 0),
        ("fail [hardware]: ...memory Fail GPU1: Fail...", "dcgm-r2", output("dcgm4.txt"), 226),
        ("fail [hardware]: ...PCIe Fail - GPU: 3...", "dcgm-r2", PCIE, 226),
        ("not checked: ...", "dcgm-r1", output("dcgm3.txt").replace("Pass", "Skip"), 0),
        ("not checked: ...NVML Library...", "dcgm-r1", INSTALLATION, 226),
    ],
)
def test_tools_that_judge_by_themselves(expected: str, name: str, text: str, code: int) -> None:
    assert words(
        result(name, text, code=code, least={"write": 1.0} if name.startswith("filesystem") else None)
    ) == Like(expected)


def test_a_comment_of_somebody_else_tells_nothing() -> None:
    for comment in ("", "hello", "[]", '{"code": 0}'):
        found = judge(TESTS["cpu-speed"], comment, "FAILED", NOTHING, platforms=[], infiniband=False)
        assert words(found) == "not checked: its job ended as FAILED and told nothing"


NODE, PAIR = TESTS["nccl-node"], TESTS["nccl-pair"]
H100 = "8x NVIDIA H100 80GB HBM3"


def judged(
    test: NodeTest,
    busbw: float,
    own: Expected | None = None,
    platforms: tuple[str, ...] = (),
    *,
    infiniband: bool = False,
) -> Result:
    comment = {"code": 0, "text": f"Out of bounds values : 0 OK\nAvg bus bandwidth : {busbw}", "platform": H100}
    return judge(test, json.dumps(comment), "COMPLETED", load(own or {}), platforms=platforms, infiniband=infiniband)


def test_our_data_have_a_source_for_each_figure() -> None:
    ours = json.loads(DATA.read_text(encoding="utf-8"))
    assert H100 in ours
    for platform, tests in ours.items():
        assert platform.removesuffix(INFINIBAND)[:3] in {"2x ", "8x "}
        for test, figures in tests.items():
            assert (TESTS[test].nodes > 1) == platform.endswith(INFINIBAND)
            for figure, entry in figures.items():
                assert len(entry["source"]) > 20, (platform, test, figure)
                assert entry["unit"] == TESTS[test].figures[figure].unit


def test_an_h100_node_is_judged_by_what_is_published_and_a_pair_only_where_it_has_infiniband() -> None:
    for busbw, status in [(420.0, Status.OK), (419.9, Status.FAIL)]:
        found = judged(NODE, busbw)
        assert found.status is status
        assert f"busbw {busbw:.4g} GB/s" in found.message
    for infiniband, status in [(True, Status.FAIL), (False, Status.NOT_CHECKED)]:
        assert judged(PAIR, 40.0, infiniband=infiniband).status is status


def test_what_the_site_says_counts_before_ours() -> None:
    own: Expected = {H100: {"nccl-node": {"busbw": 470}}, "big": {"nccl-node": {"busbw": 100.5}}}
    assert judged(NODE, 460.0, own).status is Status.FAIL
    assert judged(NODE, 460.0, own, ("big",)).status is Status.OK
    assert judged(NODE, 476.0, own, ("unknown",)).status is Status.OK
    assert minima_of(load(own), [H100 + INFINIBAND], PAIR.name), "ours stays where the site says nothing"


def test_no_test_has_the_name_of_a_check() -> None:
    """A check that is well would lift the drain of the test."""
    assert set(TESTS).isdisjoint({*find_checks(), KUBERNETES})
    assert all(name == test.name for name, test in TESTS.items())


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", '"', "\\", "\x01"])
def test_a_comment_is_never_longer_than_slurm_allows(character: str) -> None:
    for text in (character * 5000, "\n".join([character * 90] * 50)):
        for pattern in (".*", "nothing"):
            comment = on_node.told(0, text, pattern, character * 300)
            assert len(comment) <= on_node.LONGEST
            assert json.loads(comment).get("cut") or pattern == "nothing"


@pytest.mark.parametrize(
    ("listing", "platform"), [("", ""), ("NVIDIA H200\n", "1x NVIDIA H200"), ("a\na\n\n", "2x a"), ("a\nb\n", "")]
)
def test_a_platform_is_a_number_of_gpus_of_one_model(listing: str, platform: str) -> None:
    assert on_node.platform_of(listing) == platform


def test_groups_of_the_pattern_are_kept_where_it_has_some() -> None:
    assert on_node.kept("a=1   b=2\nc=3\na=4 b=5", r"a=(\d) b=(\d)") == "1 2\n4 5"


def test_it_needs_nothing_of_ours() -> None:
    assert SCRIPT.read_text().startswith("#!/usr/bin/python3 -I\n")
    assert "from images" not in SCRIPT.read_text()
