"""The GPU driver in the jail's view of this pod.

The container runtime brings the libraries and programs of the machine's own driver into the pod. They must be exactly
those of the kernel's driver, so they are bound into the view of this pod and never copied to the volume that machines
with other drivers share. docs/decisions/nodes-and-jobs.md (0010) has the reasons.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.command import Result, Runner
from images.common.jail_view import Bind, JailViewError, bind_into_jail
from images.common.mountinfo import mount_points

DIRECTORY: Final = "/run/slurmstack/gpu"
"""`lib` and `bin` of the driver, on a file system in memory that only this pod sees. It is made at this path of the
pod, where nobody in the jail can put something into its way, and then shown at the same path of the jail."""

DEFAULT_SEARCH_PATH: Final = {"x86_64": "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v2"}
"""By processor: an empty directory of the jail where the loader looks by itself, without environment and without cache
(ld.so(8), "Hardware capabilities"). There is none for others; there LD_LIBRARY_PATH alone has to do."""

_LIBRARY: Final = re.compile(r"lib[^/]+\.so(\.[0-9][^/]*)?")
_PROGRAM_DIRECTORIES: Final = ("usr/bin", "bin", "usr/sbin", "sbin")
_DRIVER_ROOT: Final = "usr/local/nvidia"
"""Where device plugins mount the whole driver as one directory."""
_FOREIGN: Final = ("jail", "mounts", "proc", "sys", "dev", "etc", "tmp")
_32_BIT: Final = ("i386-linux-gnu", "lib32")


@dataclass
class Driver:
    """What the container runtime brought."""

    libraries: dict[str, Path] = field(default_factory=dict)
    """Files by name."""
    links: dict[str, str] = field(default_factory=dict)
    """Symbolic links by name: the name of a library."""
    programs: dict[str, Path] = field(default_factory=dict)
    """Files by name."""
    sockets: list[str] = field(default_factory=list)
    """Directories in /run with sockets of the driver's daemons."""

    def __bool__(self) -> bool:
        return bool(self.libraries)


def find_driver(points: Iterable[str], root: Path = Path("/")) -> Driver:
    """Look for the driver: among the mounted files, and where device plugins mount it as one directory.

    `points` are mount points, `root` is where to look.
    """
    driver = Driver()
    for point in sorted(points):
        _take(driver, root, point.lstrip("/"))
    for directory in (f"{_DRIVER_ROOT}/lib64", f"{_DRIVER_ROOT}/lib"):
        for path in _entries(root / directory):
            if _LIBRARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                driver.libraries.setdefault(path.name, path)
    for path in _entries(root / _DRIVER_ROOT / "bin"):
        if path.is_file() and not path.is_symlink():
            driver.programs.setdefault(path.name, path)
    driver.links = _links(driver.libraries)
    return driver


def _take(driver: Driver, root: Path, point: str) -> None:
    path = root / point
    parts = Path(point).parts
    if not parts or parts[0] in _FOREIGN or any(part in parts for part in _32_BIT):
        return
    if parts[0] == "run" and len(parts) > 1 and parts[1].startswith("nvidia"):
        directory = f"/run/{parts[1]}"
        if directory not in driver.sockets:
            driver.sockets.append(directory)
    elif not path.is_file():
        return
    elif _LIBRARY.fullmatch(path.name):
        driver.libraries.setdefault(path.name, path)
    elif str(Path(point).parent) in _PROGRAM_DIRECTORIES:
        driver.programs.setdefault(path.name, path)


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _links(libraries: Mapping[str, Path]) -> dict[str, str]:
    """Links beside the libraries that lead to one of them, for example the `libcuda.so` that compilers look for."""
    names = {path.resolve(): name for name, path in libraries.items()}
    links = {}
    for directory in {path.parent for path in libraries.values()}:
        for entry in _entries(directory):
            target = names.get(entry.resolve()) if entry.is_symlink() else None
            if target is not None and entry.name not in libraries:
                links[entry.name] = target
    return links


def bind_driver(jail: Path, runner: Runner, log: Callable[[str], None]) -> bool:
    """Show the driver in the jail; returns whether there is one. A second call changes nothing.

    Raises JailViewError.
    """
    points = mount_points()
    driver = find_driver(points)
    if not driver:
        return False
    if str(jail / DIRECTORY.lstrip("/")) not in points:
        _fill(Path(DIRECTORY), driver, runner)
    # With all mounts below it: each library is one.
    binds = [Bind(path=path, recursive=True, make=True) for path in (DIRECTORY, *driver.sockets)]
    if search_path := DEFAULT_SEARCH_PATH.get(platform.machine(), ""):
        binds.append(Bind(path=search_path, source=f"{DIRECTORY}/lib", recursive=True, make=True))
    bind_into_jail(jail, binds, log)
    log(f"GPU driver in the jail at {DIRECTORY}: {len(driver.libraries)} libraries, {len(driver.programs)} programs")
    return True


def _fill(target: Path, driver: Driver, runner: Runner) -> None:
    target.mkdir(parents=True, exist_ok=True)
    result = runner(["mount", "-t", "tmpfs", "-o", "mode=0755,size=1m,nosuid,nodev", "tmpfs", str(target)])
    _expect(result, f"mount a tmpfs at {target}")
    for name, files in (("lib", driver.libraries), ("bin", driver.programs)):
        directory = target / name
        directory.mkdir(mode=0o755)
        for file, source in files.items():
            (directory / file).touch(mode=0o755)
            _expect(runner(["mount", "--bind", str(source), str(directory / file)]), f"bind {source}")
    for link, library in driver.links.items():
        (target / "lib" / link).symlink_to(library)
    # Links with the names that programs load (libcuda.so.1), read from the libraries; -n: no cache is touched.
    result = runner(["/sbin/ldconfig", "-n", str(target / "lib")])
    if not result.ok:
        raise JailViewError(f"ldconfig cannot read the GPU libraries: {result.message}")


def _expect(result: Result, what: str) -> None:
    if not result.ok:
        raise JailViewError(f"cannot {what}: {result.message} (the container needs CAP_SYS_ADMIN)")
