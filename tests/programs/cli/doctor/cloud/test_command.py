"""`slurmstack doctor cloud` as its user meets it: lines and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import serve
from tests.stacks import ROOT
from tests.unit.cli.command_line import stack_file

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the command in a process of its own, against a server."""
    environment = {**os.environ, "NO_COLOR": "1", "HOME": str(tmp_path), "NEBIUS_IAM_TOKEN": "token-for-tests"}

    def started(address: str, *arguments: str, sections: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        file = stack_file(tmp_path, sections or cloud.stack())
        doctor = [sys.executable, "-m", "cli.entry", "doctor", "cloud"]
        return subprocess.Popen(
            [*doctor, "--config", str(file), *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**environment, "SLURMSTACK_NEBIUS_SERVER": address},
        )  # fmt: skip

    return started


def test_the_command_prints_one_line_for_each_check_and_exits_with_0(start: Start) -> None:
    with serve(cloud.good(), token="token-for-tests") as server:
        process = start(server.address)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), "progress is for terminals only"
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["fine", "project", "project-e00a", "(research)", "in", "eu-north1,", "of", "tenant-e00a"]
    assert [line[0] for line in lines] == ["fine"] * 4


def test_the_command_exits_with_1_when_something_must_change_and_speaks_json(start: Start) -> None:
    with serve(cloud.good() | {"ResourceAdviceService/List": cloud.advices(cloud.advice(machines=0))}) as server:
        process = start(server.address, "--json")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    answer = json.loads(out)
    assert (answer["cloud"], answer["ok"]) == ("nebius", False)
    assert {item["state"] for item in answer["findings"] if item["check"] == "capacity"} == {"change"}


def test_a_token_never_goes_to_another_machine_in_the_clear(start: Start) -> None:
    process = start("192.0.2.1:443")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no address of this machine" in errors


def test_the_command_starts_without_loading_the_sdk() -> None:
    code = "import sys, cli.app; print([name for name in sys.modules if name.partition('.')[0] == 'nebius'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
