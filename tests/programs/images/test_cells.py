"""Cells of jobs with real mounts, and without the right to make them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks import ROOT

REAL = """
import sys
sys.path.insert(0, sys.argv[1])
import os
from pathlib import Path
from images.worker.cells import Cells
work = Path(sys.argv[2])
cells = Cells(work / "jail", 2**21, cells=work / "cells", jobs=work / "jobs")
cell = cells.enter("17", 0, 0, -1)
shm = os.statvfs(cell / "dev/shm")
mounted = lambda: open("/proc/self/mountinfo").read().count(str(work / "cells"))
(cell / "tmp/of-job").touch()
assert (work / "jobs/17/of-job").exists()
assert not list((work / "jail/tmp").iterdir())
assert (cell / "proc/self").exists()
assert shm.f_blocks * shm.f_frsize == 2**21
assert (cell / "dev/shm").stat().st_mode & 0o7777 == 0o1777
assert mounted() == 4, mounted()
again = Cells(work / "jail", 2**21, cells=work / "cells", jobs=work / "jobs")
assert "17" in again
again.leave("17")
assert (mounted(), list((work / "cells").iterdir())) == (0, [])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_with_real_mounts(tmp_path: Path) -> None:
    for name in ("proc", "tmp", "dev/shm"):
        (tmp_path / "jail" / name).mkdir(parents=True)
    subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
         'mount --bind "$2/jail" "$2/jail"; mount -t proc proc "$2/jail/proc"; exec "$3" -c "$0" "$1" "$2"',
         REAL, str(ROOT), str(tmp_path), sys.executable],
        check=True,
    )  # fmt: skip
