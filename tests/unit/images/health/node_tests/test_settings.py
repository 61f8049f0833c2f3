"""What a site says of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.health.node_tests import settings
from images.health.node_tests.catalog import TESTS


def test_nothing_has_to_be_said() -> None:
    usual = settings.read(None)
    assert [test.name for test in usual.tests] == [name for name in TESTS if name != "dcgm-r3"]
    assert str(usual.max_under_test) == "10%"
    assert (usual.directory, usual.mpi) == ("/var/tmp", "pmix")


def test_what_a_newer_stack_file_may_say_is_passed_over() -> None:
    said = settings.parse({"tests": ["cpu-speed", "a-new-one"], "intervals": {"a-new-one": 900}, "more": 1})
    assert [test.name for test in said.tests] == ["cpu-speed"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.json"):
        settings.read(tmp_path / "absent.json")
    for text in ("{", "[]", '{"max_under_test": "many"}'):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(ValueError, match=r"broken\.json"):
            settings.read(tmp_path / "broken.json")
