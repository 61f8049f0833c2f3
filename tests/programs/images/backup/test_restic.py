"""restic is let take its lock away, by a program that is told to end."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from images.backup import restic
from images.backup.restic import Credentials, Repository


def test_a_program_that_is_to_end_lets_restic_take_its_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with PID 1 of its container it would leave it, and nobody could use the repository for half an hour."""
    program, begun, ended = (tmp_path / name for name in ("restic", "begun", "ended"))
    program.write_text(f"#!/bin/sh\ntrap 'touch {ended}; exit 1' TERM\ntouch {begun}\nwhile :; do sleep 0.05; done\n")
    program.chmod(0o755)
    monkeypatch.setattr(restic, "RESTIC", str(program))
    keys = Credentials(access_key="a", secret_key="b", password="c")
    repository = Repository("https://s3.example/b/p", keys, region="r", cache=tmp_path)

    def told_to_end(*_: object, **__: object) -> None:
        while not begun.exists():
            time.sleep(0.01)
        raise SystemExit(143)

    monkeypatch.setattr(subprocess.Popen, "communicate", told_to_end)
    with pytest.raises(SystemExit):
        repository.run("check")
    assert ended.exists()
