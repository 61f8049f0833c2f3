"""A slurmctld that is tried by our programs, and judged by its answers."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from images.controller.check import check

FILES = {"slurm.conf": "ClusterName=a\n"}
ME = pwd.getpwuid(os.getuid()).pw_name


def program(directory: Path, script: str, name: str = "slurmctld") -> str:
    path = directory / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_hangs_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    fake = program(tmp_path, "echo 'slurmctld: thinking'; sleep 60")

    verdict = check(FILES, program=fake, user=ME, timeout=0.5)

    assert not verdict.starts
    assert verdict.complaints == ("error: slurmctld is not up after 0.5 s; its last line: thinking",)
