"""Which jobs have which GPU, in files for NVIDIA's dcgm-exporter (`--hpc-job-mapping-dir`); docs/usage.md.

`dcgm/NAME` has the numbers of the jobs, one a line. A GPU's name is that of its device file (/dev/nvidia3: `3`), of a
part (MIG) with its instance behind it: `3.1`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.boundary import own_directory
from images.common.files import write_atomically

SHOWN: Final = Path("/run/slurmstack/gpu-jobs")
"""What exporters read. Of the machine, where the pool says so (`gpus.job_files`), and then other pods write there, too:
each has its own GPUs."""

OWN: Final = Path("/run/slurmstack/node/gpu-jobs")
"""What this pod knows of its GPUs. For root alone."""

_GPUS: Final = "gpus.json"


@dataclass(frozen=True, kw_only=True)
class GpuJobs:
    """The files of this pod. All methods raise OSError and ValueError."""

    shown: Path = SHOWN
    own: Path = OWN

    def start(self, gpus: Sequence[str]) -> None:
        """Before slurmd starts, and so no job is here: those that an earlier slurmd had are forgotten.

        `gpus`: names in Slurm's order; none: they are not NVIDIA's, or there are none.
        """
        self.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self.own / _GPUS, json.dumps(list(gpus)))
        for directory in (self.shown, self.shown / "dcgm") if gpus else ():
            own_directory(directory)
        for name in gpus:
            (self.shown / "dcgm" / name).unlink(missing_ok=True)

    def begin(self, job: str, numbers: Sequence[int]) -> None:
        """A job gets the GPUs of these numbers, which are Slurm's."""
        self._change(lambda number, jobs: [*(one for one in jobs if one != job), *([job] if number in numbers else [])])

    def end(self, job: str) -> None:
        """A job has left its GPUs."""
        self._change(lambda _, jobs: [one for one in jobs if one != job])

    def _change(self, jobs_of: Callable[[int, Sequence[str]], Sequence[str]]) -> None:
        if not (self.own / _GPUS).exists():
            return
        descriptor = os.open(self.own, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # jobs begin and end at the same time
            for number, name in enumerate(json.loads((self.own / _GPUS).read_text(encoding="utf-8"))):
                file = self.shown / "dcgm" / name
                before = file.read_text(encoding="utf-8").split() if file.exists() else []
                after = jobs_of(number, before)
                if not after:
                    file.unlink(missing_ok=True)
                elif after != before:
                    write_atomically(file, "".join(f"{job}\n" for job in after), sync=False)
        finally:
            os.close(descriptor)
