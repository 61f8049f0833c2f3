"""await-config: which configuration it waits for, and until when."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from images.controller.await_config import await_config, wanted_of
from slurm.conf import config_hash
from tests.fakes.commands import FakeClock


def answers(*values: dict[str, Any] | Exception) -> Any:
    iterator = iter(values)

    def fetch() -> dict[str, Any]:
        value = next(iterator)
        if isinstance(value, Exception):
            raise value
        return value

    return fetch


def wait(*values: dict[str, Any] | Exception) -> tuple[int, list[str]]:
    log: list[str] = []
    return await_config(lambda: "h", answers(*values), log.append, FakeClock()), log


def test_it_knows_the_configuration_that_is_mounted(tmp_path: Path) -> None:
    files = {"slurm.conf": "ClusterName=c\n", "gres.conf": ""}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "..data").mkdir()

    mounted, named = wanted_of(["--mounted", str(tmp_path)]), wanted_of(["0123456789abcdef"])
    assert mounted is not None
    assert named is not None
    assert (mounted(), named()) == (config_hash(files), "0123456789abcdef")


def test_a_mounted_configuration_that_changes_meanwhile_is_the_one_that_counts() -> None:
    mounted = iter(["first", "first", "second"])
    status = {"active": "second", "pending": None, "rejected": None}
    assert await_config(lambda: next(mounted), lambda: status, lambda _: None, FakeClock()) == 0


def test_the_rejection_of_another_configuration_is_none_of_ours() -> None:
    code, _ = wait({"active": "old", "rejected": {"hash": "x", "message": "m"}}, {"active": "h", "rejected": None})

    assert code == 0


def test_a_controller_that_is_not_there_yet_is_waited_for() -> None:
    code, log = wait(
        urllib.error.URLError("refused"), TimeoutError("slow"), ValueError("half an answer"), {"active": "h"}
    )

    assert code == 0
    assert "waiting for the controller" in log[0]
