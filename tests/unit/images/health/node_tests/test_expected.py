"""What is expected of a platform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from images.health.contract import Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.contract import Reading
from images.health.node_tests.expected import INFINIBAND, load, parse
from images.health.node_tests.judge import Said, judge
from images.health.registry import find_checks
from images.health.watch.decide import KUBERNETES

NODE, PAIR, CPU = TESTS["nccl-node"], TESTS["nccl-pair"], TESTS["cpu-speed"]
H100 = "8x NVIDIA H100 80GB HBM3"


def said(busbw: float) -> Said:
    return Said(code=0, text=f"Out of bounds values : 0 OK\nAvg bus bandwidth : {busbw}", platform=H100)


def test_our_data_have_a_source_for_each_figure() -> None:
    ours = load(TESTS)
    assert H100 in ours.platforms()
    for platform, test, figure, minimum in ours.minima():
        assert len(minimum.source) > 20, (platform, test, figure)
        assert minimum.unit == TESTS[test].units[figure]
        assert (TESTS[test].nodes > 1) == platform.endswith(INFINIBAND)
        assert platform.removesuffix(INFINIBAND)[:3] in {"2x ", "8x "}


@pytest.mark.parametrize(
    ("busbw", "status"), [(476.0, Status.OK), (420.0, Status.OK), (419.9, Status.FAIL), (60.0, Status.FAIL)]
)
def test_an_h100_node_is_judged_by_what_is_published(busbw: float, status: Status) -> None:
    found = judge(NODE, said(busbw), load(TESTS), platforms=[], infiniband=False)
    assert found.status is status
    assert f"busbw {busbw:.4g} GB/s" in found.message


def test_a_pair_is_only_judged_where_it_has_infiniband() -> None:
    assert judge(PAIR, said(40.0), load(TESTS), platforms=[], infiniband=True).status is Status.FAIL
    without = judge(PAIR, said(40.0), load(TESTS), platforms=[], infiniband=False)
    assert without.status is Status.NOT_CHECKED


def test_what_the_site_says_counts_before_ours() -> None:
    own = {H100: {"nccl-node": {"busbw": 470}}, "big": {"nccl-node": {"busbw": {"min": 100.5, "source": "us"}}}}
    expected = load(TESTS, own)
    assert judge(NODE, said(460.0), expected, platforms=[], infiniband=False).status is Status.FAIL
    assert judge(NODE, said(460.0), expected, platforms=["big"], infiniband=False).status is Status.OK
    assert judge(NODE, said(476.0), expected, platforms=["unknown"], infiniband=False).status is Status.OK
    assert expected.of([H100 + INFINIBAND], PAIR), "ours stays where the site says nothing"


def test_an_unknown_platform_has_no_verdict_however_slow() -> None:
    slow = Said(code=0, text=said(0.1).text, platform="8x NVIDIA Z999")
    found = judge(NODE, slow, load(TESTS), platforms=[], infiniband=False)
    assert (found.status, found.fault) == (Status.NOT_CHECKED, None)
    assert "busbw 0.1 GB/s" in found.message
    assert "8x NVIDIA Z999" in found.message
    nameless = judge(CPU, Said(code=0, text="events per second: 1.5"), load(TESTS), platforms=[], infiniband=False)
    assert "a platform that is not known" in nameless.message


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ([], "expected"),
        ({"p": 7}, "expected.p"),
        ({"p": {"gpu": {}}}, "'gpu'"),
        ({"p": {"cpu-speed": {"speed": 1}}}, "expected.p.cpu-speed.speed"),
        ({"p": {"cpu-speed": {"events": "fast"}}}, "'fast'"),
        ({"p": {"cpu-speed": {"events": 0}}}, "0 is no minimum"),
        ({"p": {"cpu-speed": {"events": True}}}, "True"),
        ({"p": {"cpu-speed": {"events": float("nan")}}}, "nan"),
        ({"p": {"cpu-speed": {"events": {"minimum": 5}}}}, "minimum: allowed"),
        ({"p": {"cpu-speed": {"events": {"min": 5, "unit": "GB/s"}}}}, "'events/s', not 'GB/s'"),
        ({"p": {"cpu-speed": {"events": {}}}}, "None is no minimum"),
    ],
)
def test_a_slip_of_the_pen_is_named(own: Any, named: str) -> None:
    with pytest.raises(ValueError, match=r"expected") as error:
        parse(own, TESTS, "expected")
    assert named in str(error.value)


def test_a_figure_that_is_expected_and_missing_is_no_success() -> None:
    own = {H100: {"filesystem-throughput": {"read": 5}}}
    silent = replace(TESTS["filesystem-throughput"], read=lambda _text: Reading(figures={"write": 100.0}))
    found = judge(silent, said(1.0), load(TESTS, own), platforms=[], infiniband=False)
    assert (found.status, found.message) == (Status.NOT_CHECKED, "it did not say read")


def test_no_test_has_the_name_of_a_check() -> None:
    """A check that is well would lift the drain of the test."""
    assert set(TESTS).isdisjoint({*find_checks().checks, KUBERNETES})
    assert all(name == test.name for name, test in TESTS.items())
