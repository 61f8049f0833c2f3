"""The command, called as a user calls it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from tests import command
from tests.fakes.engine import FakeEngine


def slurmstack(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return command.run(arguments, {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment})


def stack_file(tmp_path: Path, sections: dict[str, object]) -> Path:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(
        yaml.safe_dump({"config": {f"slurmstack:{key}": value for key, value in sections.items()}}), encoding="utf-8"
    )
    return path


def call(engine: FakeEngine, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a stack file with the engine's programs on its PATH."""
    return slurmstack(*arguments, "--config", str(file), **engine.path)
