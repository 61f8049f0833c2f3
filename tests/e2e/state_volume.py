"""A state volume with little room, which can be filled, can hang for all, and can hang for one machine alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from images.controller.epochs import RENEWED
from local import namespaces

SIZE = 64 << 20
MACHINES = ("node-0", "node-1")


class StateVolume:
    """A file system of its own, which both machines have at a directory."""

    def __init__(self, directory: Path, image: Path) -> None:
        self.directory, self._image = directory, image
        self._filler = directory / "filler"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(self._image)], check=True)
        attached = subprocess.run(
            ["losetup", "--find", "--show", str(self._image)], check=True, capture_output=True, text=True
        )
        self._device = attached.stdout.strip()
        self._everywhere("mount", self._device, str(self.directory))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        subprocess.run(["losetup", "--detach", self._device], check=True)  # when the last pod has gone

    def let_go(self) -> None:
        """Let the directory be one of the disk, which can be removed; pods keep what they have."""
        if str(self.directory) in namespaces.mounted_below(self.directory):
            self._everywhere("umount", "--lazy", str(self.directory))

    def _everywhere(self, *command: str) -> None:
        """Here and on both machines: no mount goes from one to another."""
        for inside in ([], *(namespaces.enter(machine, with_mounts=True) for machine in MACHINES)):
            subprocess.run([*inside, *command], check=True)

    def fill(self) -> None:
        """Until not a byte more is taken."""
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 16, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file.fileno(), bytes(size))

    def free(self) -> None:
        """Let there be room again."""
        self._filler.unlink(missing_ok=True)

    def hang(self, seconds: int) -> None:
        """Let it take no write for a while: it ends also where nobody asks for that any more."""
        subprocess.run(["fsfreeze", "--freeze", str(self.directory)], check=True)
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; fsfreeze --unfreeze {self.directory}"], start_new_session=True)

    def cut_off(self, machine: str, pid: int) -> None:
        """Let what a controller writes to say that it is there hang, for this machine alone: a pipe that nobody reads.

        `pid`: of its slurmctld. What runs has mounts of its own; what starts there later gets the machine's.
        """
        (renewed,) = self.directory.glob(f"term-*/{RENEWED}")
        within = Path("/var/lib/slurmstack/state", renewed.relative_to(self.directory))
        container = ["nsenter", f"--target={pid}", "--mount", "--root", "--wdns=/"]
        for inside, pipe, place in (
            (namespaces.enter(machine, with_mounts=True), self._image.with_name("pipe"), renewed),
            (container, Path("/run/slurmstack/pipe"), within),
        ):
            subprocess.run([*inside, "mkfifo", str(pipe)], check=True)
            subprocess.run([*inside, "mount", "--bind", str(pipe), str(place)], check=True)

    def reach_again(self, machine: str) -> None:
        """The end of that, for what is started on the machine from now on."""
        inside = namespaces.enter(machine, with_mounts=True)
        for renewed in self.directory.glob(f"term-*/{RENEWED}"):  # the mount goes with the directory that is renamed
            subprocess.run([*inside, "umount", str(renewed)], check=False)
        self._image.with_name("pipe").unlink(missing_ok=True)
