"""Which jobs have which GPU, in files for exporters of GPUs' figures. docs/usage.md has their forms.

`dcgm/NAME` has the numbers of the jobs, one a line: what NVIDIA's dcgm-exporter reads (`--hpc-job-mapping-dir`).
`gpustat/NAME` and `gpustat/UUID` have number and user of the only job: what jobstats' exporter reads in /run/gpustat,
which knows no second one.

A GPU's name is that of its device file (/dev/nvidia3: `3`), of a part (MIG) with its instance behind it: `3.1`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
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
_LOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a job gets when it asks for one GPU of NVIDIA's."""

    name: str
    uuid: str
    """`GPU-...` or `MIG-...`; empty: unknown."""


@dataclass(frozen=True, kw_only=True)
class GpuJobs:
    """The files of this pod. All methods raise OSError and ValueError."""

    shown: Path = SHOWN
    own: Path = OWN

    def start(self, gpus: Sequence[Gpu]) -> None:
        """Before slurmd starts, and so no job is here: those that an earlier slurmd had are forgotten.

        `gpus`: in Slurm's order.
        """
        self.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self.own.iterdir():
            path.unlink()
        write_atomically(self.own / _GPUS, json.dumps([[gpu.name, gpu.uuid] for gpu in gpus]))
        if gpus:
            own_directory(self.shown)
            self._show(gpus)

    def begin(self, job: str, uid: int, numbers: Sequence[int]) -> None:
        """A job gets the GPUs of these numbers, which are Slurm's."""
        gpus = self._gpus()
        if not gpus or not numbers:
            return
        # Known even where the lock is not to be had: whoever has it next shows all that is known.
        write_atomically(self._file(job), json.dumps([uid, *numbers]), sync=False)
        with self._alone():
            self._show(gpus)

    def end(self, job: str) -> None:
        """A job has left its GPUs."""
        if self._file(job).exists():
            self._file(job).unlink(missing_ok=True)
            with self._alone():
                self._show(self._gpus())

    def _gpus(self) -> list[Gpu]:
        """Slurm's numbers count them. None: they are not NVIDIA's, or there are none."""
        try:
            known = json.loads((self.own / _GPUS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return [Gpu(name=name, uuid=uuid) for name, uuid in known]

    def _file(self, job: str) -> Path:
        if not job.isdigit():
            raise ValueError(f"{job!r} is no job's number")
        return self.own / job

    def _show(self, gpus: Sequence[Gpu]) -> None:
        """From all that is known, so that what went wrong for one job is mended with the next."""
        jobs = self._jobs()
        dcgm: dict[str, str] = {}
        gpustat: dict[str, str] = {}
        for number, gpu in enumerate(gpus):
            having = [job for job, (_, *numbers) in jobs.items() if number in numbers]
            only = f"{having[0]} {jobs[having[0]][0]}\n" if len(having) == 1 else ""
            dcgm[gpu.name] = "".join(f"{job}\n" for job in having)
            gpustat |= dict.fromkeys(filter(None, (gpu.name, gpu.uuid)), only)
        failed: OSError | None = None
        own_directory(self.shown)
        for directory, files in ((self.shown / "dcgm", dcgm), (self.shown / "gpustat", gpustat)):
            own_directory(directory)
            for file, content in files.items():
                try:
                    _put(directory / file, content)
                except OSError as error:  # the others are shown all the same
                    failed = failed or error
        if failed is not None:
            raise failed

    def _jobs(self) -> dict[str, list[int]]:
        """Job -> its user and the numbers of its GPUs, the oldest first."""
        jobs = {}
        for name in sorted((path.name for path in self.own.iterdir() if path.name.isdigit()), key=int):
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                jobs[name] = json.loads(self._file(name).read_text(encoding="utf-8"))
        return jobs

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Jobs begin and end at the same time. A prolog must not wait for long."""
        descriptor = os.open(self.own, os.O_RDONLY | os.O_DIRECTORY)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(0.02)
            yield
        finally:
            os.close(descriptor)


def _put(path: Path, content: str) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()  # as a mount of a file that was not there makes it
    if content:
        write_atomically(path, content, sync=False)
    else:
        path.unlink(missing_ok=True)
