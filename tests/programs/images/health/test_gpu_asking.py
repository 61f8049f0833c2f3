"""How nvidia-smi is asked: once in a run, only what the driver knows, and never beside one that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_a_node_without_such_hardware_does_not_load_their_programs() -> None:
    code = (
        "import sys; from images.common.health.contract import Node; from images.health.registry import find_checks; "
        "find_checks(Node(name='cpu-0')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "images.health.checks.disks" in loaded
    assert not [name for name in loaded if "nvidia" in name or "gpu" in name or "infiniband" in name]
