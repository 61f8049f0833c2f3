"""What a site says of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from images.health.node_tests import settings
from images.health.node_tests.catalog import TESTS


def test_nothing_has_to_be_said() -> None:
    usual = settings.read(None)
    assert [test.name for test in usual.policy.tests] == [name for name in TESTS if name != "dcgm-r3"]
    assert str(usual.policy.max_under_test) == "10%"
    assert (usual.place.directory, usual.place.mpi) == ("/var/tmp", "pmix")


def test_all_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    given = {
        "tests": ["cpu-speed", "dcgm-r3"],
        "intervals": {"cpu-speed": 3600},
        "max_under_test": "2",
        "platforms": {"a": "16vcpu"},
        "infiniband": ["b"],
        "expected": {"16vcpu": {"cpu-speed": {"events": 5000}}},
        "directory": "/mnt/x",
        "nccl_tests": "/opt/all_reduce_perf",
        "mpi": "pmi2",
        "account": "ops",
        "qos": "low",
        "partition": "tests",
        "retest_after": 900,
    }
    path.write_text(json.dumps(given))
    said = settings.read(path)
    assert [test.name for test in said.policy.tests] == ["cpu-speed", "dcgm-r3"]
    assert said.policy.interval(TESTS["cpu-speed"]) == 3600
    assert said.policy.interval(TESTS["memory-bandwidth"]) == TESTS["memory-bandwidth"].interval
    assert (said.retest_after, settings.read(None).retest_after) == (900, 1800)
    assert said.pools == {"a", "b"}
    assert said.expected.of(["16vcpu"], TESTS["cpu-speed"])["events"].value == 5000
    assert (said.place.directory, said.place.nccl_tests, said.place.mpi) == ("/mnt/x", "/opt/all_reduce_perf", "pmi2")
    assert (said.account.account, said.account.qos, said.account.partition) == ("ops", "low", "tests")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "no mapping"),
        ({"test": []}, "test: there is no such key"),
        ({"tests": "cpu-speed"}, "tests"),
        ({"tests": ["cpus"]}, "cpus: there is no such test"),
        ({"intervals": {"cpu-speed": 5}}, "intervals.cpu-speed"),
        ({"intervals": {"cpu-speed": True}}, "intervals.cpu-speed"),
        ({"intervals": {"cpu-speed": float("nan")}}, "intervals.cpu-speed"),
        ({"intervals": {"x": 900}}, "intervals.x"),
        ({"intervals": 900}, "intervals"),
        ({"max_under_test": "many"}, "'many'"),
        ({"retest_after": 0}, "retest_after"),
        ({"retest_after": "1h"}, "retest_after"),
        ({"platforms": ["a"]}, "platforms"),
        ({"platforms": {"a": 1}}, "platforms.a"),
        ({"infiniband": "a"}, "infiniband"),
        ({"infiniband": [1]}, "infiniband"),
        ({"directory": 1}, "directory"),
        ({"expected": {"p": {"cpu-speed": {"x": 1}}}}, "expected.p.cpu-speed.x"),
    ],
)
def test_a_slip_of_the_pen_is_named(given: Any, named: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  (what it names is looked at)
        settings.parse(given)
    assert named in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.json"):
        settings.read(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json"):
        settings.read(tmp_path / "broken.json")
