"""What is expected of a platform."""

from __future__ import annotations

import json

from images.common.health.contract import Result, Status
from images.health.node_tests.catalog import TESTS, NodeTest
from images.health.node_tests.expected import DATA, INFINIBAND, Expected, load, minima_of
from images.health.node_tests.judge import judge
from images.health.registry import find_checks
from images.health.watch.view import KUBERNETES

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
