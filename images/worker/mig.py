"""Parts of NVIDIA's GPUs (MIG): what the pod has of them, and by which files.

Slurm finds them with NVIDIA's library and a plugin that Debian has for one version of Slurm only. Here the driver's own
program says which there are, and the kernel by which files they are opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from images.common.command import Runner

_MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
"""Minor numbers in /dev/nvidia-caps: `gpu0/gi1/access 12`, `gpu0/gi1/ci0/access 13`."""

_GPU: Final = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_PART: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")
_SECONDS: Final = 60
"""For nvidia-smi, which loads the driver's state anew for each GPU that nobody uses."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """An instance of a profile."""

    minor: int
    """Of its GPU: /dev/nvidia0."""
    instance: str
    """Its number there (GPU instance)."""
    uuid: str
    """`MIG-...`."""
    profile: str
    """As Slurm knows it: `1g.10gb`, `1g.10gb.me`."""
    files: tuple[str, ...]
    """All that has to be opened to use it."""


def find(runner: Runner, log: Callable[[str], None], root: Path = Path("/")) -> list[Part]:
    """The parts that the pod has; none, and the reason in the log, where that cannot be found out."""
    listed = runner(["nvidia-smi", "-L"], timeout=_SECONDS)
    described = runner(["nvidia-smi", "-q", "-x"], timeout=_SECONDS)
    for answer in (listed, described):
        if not answer.ok:
            log(f"the parts of the GPUs cannot be found: {answer.message}")
            return []
    try:
        minors = _minors((root / _MINORS).read_text(encoding="ascii"))
        parts = [
            Part(
                minor=minor,
                instance=place[0],
                uuid=uuid,
                profile=profile.replace("+", "."),
                files=_files(minor, place, minors),
            )
            for minor, (profile, uuid), place in _parts(listed.stdout, described.stdout)
        ]
    except (OSError, ValueError, ET.ParseError) as error:
        log(f"the parts of the GPUs cannot be found: {error}")
        return []
    return [part for part in parts if all((root / file.lstrip("/")).exists() for file in part.files)]


def _parts(listed: str, described: str) -> Iterator[tuple[int, tuple[str, str], tuple[str, str]]]:
    """The GPU's minor number, profile and UUID, and the numbers of the two instances that make a part.

    Raises ValueError where the two answers do not say the same.
    """
    named = _named(listed)
    for gpu in ET.fromstring(described).iter("gpu"):  # noqa: S314 - the driver's own program says it
        uuid, minor = gpu.findtext("uuid", ""), gpu.findtext("minor_number", "")
        for part in gpu.iterfind("mig_devices/mig_device"):
            index = part.findtext("index", "")
            names = named.get((uuid, index))
            place = part.findtext("gpu_instance_id", ""), part.findtext("compute_instance_id", "")
            if names is None or not all(number.isdigit() for number in (minor, *place)):
                raise ValueError(f"nvidia-smi says nothing of part {index} of {uuid}")
            yield int(minor), names, place


def _named(listed: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Profile and UUID, by the GPU's UUID and the part's number in it."""
    named, uuid = {}, ""
    for line in listed.splitlines():
        if gpu := _GPU.match(line):
            uuid = gpu[1]
        elif part := _PART.match(line):
            named[uuid, part[2]] = part[1], part[3]
    return named


def _minors(text: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in text.splitlines() if len(words := line.split()) == 2}


def _files(minor: int, place: tuple[str, str], minors: dict[str, int]) -> tuple[str, ...]:
    gpu, (instance, compute) = f"gpu{minor}", place
    names = (f"{gpu}/gi{instance}/access", f"{gpu}/gi{instance}/ci{compute}/access")
    missing = [name for name in names if name not in minors]
    if missing:
        raise ValueError(f"the kernel knows no {' and no '.join(missing)}")
    return (f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in names))
