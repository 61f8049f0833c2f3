"""Which sections a command works on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.stack import open_stack
from config import ConfigError
from tests import stacks


def test_a_key_of_an_environment_with_a_misspelt_prefix_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {f"slurmstack:{name}": value for name, value in stacks.dev().items()} | {"slurm:users": {}}
    opened = {key: {"value": json.dumps(value), "secret": False} for key, value in keys.items()}

    def pulumi(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps(opened), stderr="")

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/pulumi")
    monkeypatch.setattr("subprocess.run", pulumi)
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text("environment: [team/shared]\nconfig: {}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^slurm:users: 'slurm' is not 'slurmstack': write `slurmstack:users:`$"):
        open_stack(file)


@pytest.mark.parametrize("named", ["Pulumi.op.yaml", "op.yml", "Pulumi.op", "stacks/Pulumi.op.yaml"])
def test_a_file_where_the_name_of_a_stack_belongs_is_told_apart(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_STACK", named)
    with pytest.raises(ConfigError, match=r"is a file, and the name of a stack belongs there: op; .* --config$"):
        open_stack(None)
