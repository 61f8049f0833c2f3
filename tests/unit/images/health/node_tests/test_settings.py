"""What a site says of the tests."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert said.expected["16vcpu"]["cpu-speed"] == {"events": 5000}
    assert (said.place.directory, said.place.nccl_tests, said.place.mpi) == ("/mnt/x", "/opt/all_reduce_perf", "pmi2")
    assert (said.account, said.qos, said.partition) == ("ops", "low", "tests")


def test_what_a_newer_stack_file_may_say_is_passed_over() -> None:
    said = settings.parse({"tests": ["cpu-speed", "a-new-one"], "intervals": {"a-new-one": 900}, "more": 1})
    assert [test.name for test in said.policy.tests] == ["cpu-speed"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.json"):
        settings.read(tmp_path / "absent.json")
    for text in ("{", "[]", '{"max_under_test": "many"}'):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(ValueError, match=r"broken\.json"):
            settings.read(tmp_path / "broken.json")
