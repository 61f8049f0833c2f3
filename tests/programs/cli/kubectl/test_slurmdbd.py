"""slurmdbd is asked a short question first, by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cli.kubectl.client import NO_SLURMDBD, if_slurmdbd_answers


@pytest.mark.parametrize(("sacctmgr", "silent"), [("exit 0", False), ("exit 1", False), ("exit 124", True)])
def test_one_that_hangs_is_asked_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sacctmgr: str, silent: bool
) -> None:
    (tmp_path / "sacctmgr").write_text(f"#!/bin/sh\n{sacctmgr}\n", encoding="utf-8")
    (tmp_path / "sacctmgr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(if_slurmdbd_answers(["cat"]), input="{}", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ((NO_SLURMDBD, "") if silent else (0, "{}"))
