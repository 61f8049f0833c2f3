"""Programs with mounts of their own, which are gone with them."""

from __future__ import annotations

import subprocess
import sys

from tests.stacks import ROOT


def run_apart(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code as root of a mount namespace of its own."""
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
