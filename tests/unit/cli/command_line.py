"""The command, called as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.stacks import ROOT


def slurmstack(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cli.entry", *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def stack_file(tmp_path: Path, sections: dict[str, object]) -> Path:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(
        yaml.safe_dump({"config": {f"slurmstack:{key}": value for key, value in sections.items()}}), encoding="utf-8"
    )
    return path
