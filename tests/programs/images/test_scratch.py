"""What may not be started from a worker's scratch, by real mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs.images.mounts import run_apart

STRICT = """
import os, sys
from pathlib import Path
from images.common.mountinfo import attach
from images.worker.scratch import forbid_programs_of_others
here = Path(sys.argv[1])
for name in ("disk", "disk/jobs", "cell"):
    (here / name).mkdir()
os.system(f"mount -t tmpfs -o noexec disk {here}/disk")
(here / "disk/jobs").mkdir()
forbid_programs_of_others("host_path", here / "disk")
attach(here / "disk/jobs", os.open(here / "cell", os.O_PATH))
for line in Path("/proc/self/mountinfo").read_text().splitlines():
    if str(here) in line:
        print(sorted({"nosuid", "nodev", "noexec"} & set(line.split()[5].split(","))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_no_program_on_it_has_its_owner_s_rights_also_where_it_is_shown_to_a_job(tmp_path: Path) -> None:
    done = run_apart(STRICT, tmp_path)
    assert done.stdout.splitlines() == ["['nodev', 'noexec', 'nosuid']"] * 2, done.stderr
