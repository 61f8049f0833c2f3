"""The layout's rules: imports point one way, and no test needs another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.rooms import imported_rooms

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "config": set(),
    "slurm": {"config"},
    "components": {"config", "slurm"},
    "local": {"slurm"},
    "cli": {"config", "slurm", "components", "local"},
}
"""Rooms of ours that each room may use besides itself. Nothing imports `__main__`."""


def test_one_file_alone_knows_grafana_s_builders_and_nothing_loads_it_unasked() -> None:
    files = [path for room in MAY_IMPORT for path in sorted((ROOT / room).rglob("*.py"))]
    users = [path.relative_to(ROOT).as_posix() for path in files if "grafana_foundation_sdk" in imported_rooms(path)]
    assert users == ["slurm/dashboards/grafana.py"]
    script = "import sys, components.cluster, cli.app; print('grafana_foundation_sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
