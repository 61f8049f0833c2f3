"""`slurmstack doctor cloud` as its user meets it: lines, exit statuses, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import stacks
from tests.fakes import nebius_answers as cloud
from tests.fakes.nebius import Never, serve
from tests.programs.waiting import wait_until
from tests.stacks import ROOT

TOKEN = "token-for-tests"


class Command:
    """The command in a process of its own, against a server."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "Pulumi.test.yaml"
        self.home = tmp_path

    def start(self, address: str, *arguments: str, sections: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        config = {f"slurmstack:{key}": value for key, value in (sections or cloud.stack()).items()}
        self.file.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
        environment = {"NO_COLOR": "1", "HOME": str(self.home), "NEBIUS_IAM_TOKEN": TOKEN}
        # A shell starts what is to run in its background without SIGINT, and so would the tests' own children be.
        own_signals = ["env", "--default-signal=INT"]
        doctor = [sys.executable, "-m", "cli.entry", "doctor", "cloud", "--config", str(self.file)]
        return subprocess.Popen(
            [*own_signals, *doctor, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment, "SLURMSTACK_NEBIUS_SERVER": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_the_command_prints_one_line_for_each_check_and_exits_with_0(command: Command) -> None:
    with serve(cloud.good(), token=TOKEN) as server:
        process = command.start(server.address)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == "", "progress is for terminals only"
    lines = out.splitlines()
    assert lines[0].split() == ["fine", "credentials", "user", "alice@example.com"]
    assert lines[-1] == "10 fine"
    assert len(lines) == 10 + 2


def test_the_command_exits_with_1_when_something_must_change_and_speaks_json(command: Command) -> None:
    with serve(cloud.good() | {"ProjectService/Get": cloud.NOT_FOUND}, token=TOKEN) as server:
        process = command.start(server.address, "--json")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    answer = json.loads(out)
    assert (answer["cloud"], answer["ok"]) == ("nebius", False)
    states = {item["check"]: item["state"] for item in answer["findings"]}
    assert (states["project"], states["capacity"], states["machines"]) == ("change", "unchecked", "fine")


def test_warnings_exit_with_0_unless_all_must_be_fine(command: Command) -> None:
    with serve(cloud.good() | {"AllocationService/ListBySubnet": cloud.FORBIDDEN}, token=TOKEN) as server:
        codes = []
        for arguments in ((), ("--strict",)):
            process = command.start(server.address, *arguments)
            process.communicate(timeout=60)
            codes.append(process.returncode)
    assert codes == [0, 1]


def test_ctrl_c_ends_the_command_at_once_and_without_a_traceback(command: Command) -> None:
    replies = {name: Never() for name in cloud.good()}
    with serve(replies) as server:
        process = command.start(server.address)
        wait_until(lambda: server.asked)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=50)  # the command itself would ask for 60 s
    assert process.returncode == 130
    assert errors.startswith("error: interrupted\n")
    assert "Traceback" not in errors


def test_a_cluster_that_is_already_there_has_no_cloud_to_ask(command: Command) -> None:
    process = command.start("127.0.0.1:1", sections=stacks.existing())
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "the cluster is already there (cloud.kind: existing), so there is no cloud to ask\n"


def test_a_token_never_goes_to_another_machine_in_the_clear(command: Command) -> None:
    process = command.start("192.0.2.1:443")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no address of this machine" in errors


def test_the_command_starts_without_loading_the_sdk() -> None:
    code = "import sys, cli.app; print([name for name in sys.modules if name.partition('.')[0] == 'nebius'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
