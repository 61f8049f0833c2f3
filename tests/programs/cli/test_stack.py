"""Which sections a command works on."""

from __future__ import annotations

from pathlib import Path

from tests import stacks
from tests.fakes.engine import FakeEngine
from tests.unit.cli.command_line import call, stack_file


def test_a_stack_file_with_environments_of_pulumi_esc_is_refused(tmp_path: Path) -> None:
    file = stack_file(tmp_path, stacks.existing())
    file.write_text(f"environment: [team/shared]\n{file.read_text(encoding='utf-8')}", encoding="utf-8")
    done = call(FakeEngine(tmp_path / "bin", "kubectl"), file, "validate")
    assert done.returncode == 2
    assert "environment: imports environments of Pulumi ESC, which only the Pulumi engine would read" in done.stderr
