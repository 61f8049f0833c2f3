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
from tests.fakes.engine import FakeEngine
from tests.unit.cli.command_line import call, stack_file


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


def with_environment(directory: Path, sections: dict[str, Any]) -> Path:
    """The file of a stack that imports an environment of Pulumi ESC."""
    file = stack_file(directory, sections)
    file.write_text(f"environment: [team/shared]\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    return file


def test_what_environments_add_to_a_stack_file_is_asked_of_pulumi(engine: FakeEngine, tmp_path: Path) -> None:
    sections = stacks.existing()
    engine.opens({**sections, "protect": True})
    file = with_environment(tmp_path, {name: value for name, value in sections.items() if name != "worker_nodes"})
    done = call(engine, file, "validate", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 6
    (words,) = engine.calls("pulumi", "config")
    assert (words[words.index("--stack") + 1], words[words.index("--config-file") + 1]) == ("test", str(file))


def test_a_secret_of_an_environment_is_refused_by_the_name_of_its_section(engine: FakeEngine, tmp_path: Path) -> None:
    engine.opens(stacks.existing(), "jail")
    done = call(engine, with_environment(tmp_path, stacks.existing()), "validate")
    assert done.returncode == 2
    assert "jail: is encrypted" in done.stderr


def test_without_pulumi_a_stack_file_with_environments_is_refused(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "bin", "kubectl")
    done = call(engine, with_environment(tmp_path, stacks.existing()), "validate")
    assert done.returncode == 2
    assert "environment: imports environments of Pulumi ESC, which only the pulumi command can open" in done.stderr
