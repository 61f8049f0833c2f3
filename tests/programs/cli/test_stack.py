"""Which sections a command works on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import stacks
from tests.fakes.engine import FakeEngine
from tests.unit.cli.command_line import call, stack_file


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
