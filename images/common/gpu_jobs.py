"""Which jobs have which GPU, in files for NVIDIA's dcgm-exporter (`--hpc-job-mapping-dir`); docs/usage.md.

`dcgm/NAME` has the numbers of the jobs, one a line. A GPU's name is that of its device file (/dev/nvidia3: `3`), of a
part (MIG) with its instance behind it: `3.1`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.boundary import own_directory
from images.common.files import write_atomically

SHOWN: Final = Path("/run/slurmstack/gpu-jobs")
"""What exporters read. Of the machine, where the pool says so (`gpus.job_files`), and then other pods write there, too:
each has its own GPUs."""

OWN: Final = Path("/run/slurmstack/node/gpu-jobs")
"""What this pod knows: its GPUs, and a file for each job. For root alone."""

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
        for path in self.own.iterdir():
            path.unlink()
        write_atomically(self.own / _GPUS, json.dumps(list(gpus)))
        self._show()

    def begin(self, job: str, numbers: Sequence[int]) -> None:
        """A job gets the GPUs of these numbers, which are Slurm's."""
        if numbers and (self.own / _GPUS).exists():
            write_atomically(self._file(job), json.dumps(list(numbers)), sync=False)
            self._show()

    def end(self, job: str) -> None:
        """A job has left its GPUs."""
        if self._file(job).exists():
            self._file(job).unlink(missing_ok=True)
            self._show()

    def _file(self, job: str) -> Path:
        if not job.isdigit():
            raise ValueError(f"{job!r} is no job's number")
        return self.own / job

    def _show(self) -> None:
        """From all that is known, so that what went wrong for one job is mended with the next."""
        descriptor = os.open(self.own, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # jobs begin and end at the same time
            gpus, jobs = json.loads((self.own / _GPUS).read_text(encoding="utf-8")), self._jobs()
            if gpus:
                own_directory(self.shown)
                own_directory(self.shown / "dcgm")
            for number, name in enumerate(gpus):
                having = "".join(f"{job}\n" for job, numbers in jobs.items() if number in numbers)
                if having:
                    write_atomically(self.shown / "dcgm" / name, having, sync=False)
                else:
                    (self.shown / "dcgm" / name).unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _jobs(self) -> dict[str, list[int]]:
        """Job -> the numbers of its GPUs, the oldest first."""
        jobs = {}
        for name in sorted((path.name for path in self.own.iterdir() if path.name.isdigit()), key=int):
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                jobs[name] = json.loads(self._file(name).read_text(encoding="utf-8"))
        return jobs
