"""Build step of the jail image: further packages of Debian, and CUDA, as the stack file names them.

Where the jail is filled already, root runs the same on a login node: `/usr/libexec/slurmstack/install-packages --cuda`.
It stands alone: in the build it runs before the other programs are there, so that they never install a package again.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

MARK: Final = "slurmstack: "
"""Begins the one line that says why nothing was installed, among all others of a build."""

CUDA: Final = ("nvidia-cuda-toolkit", "libnccl2", "libnccl-dev")
"""nvcc and all libraries, which Debian has in one piece, and NCCL. Recommended packages are left out: documentation,
graphical tools with Java, the debugger."""

COMPONENTS: Final = ("contrib", "non-free")
"""Where Debian has them: NCCL in the first, CUDA, which is not free, in the second."""

STAND_IN: Final = """\
Package: slurmstack-machines-driver
Version: 1
Architecture: all
Section: non-free/libs
Priority: optional
Maintainer: slurmstack <root@localhost>
Provides: libcuda1 (= 9999), libcuda.so.1 (= 9999), libnvidia-ml1 (= 9999), libnvidia-ml.so.1 (= 9999)
Description: the NVIDIA driver is that of the machine
 Jobs find the libraries of the driver that their machine runs. This empty
 package keeps apt from installing another driver's beside them.
"""
"""Debian's packages of CUDA depend on its own driver, which would also divert all of OpenGL's libraries."""

EXCLUDES: Final = "etc/dpkg/dpkg.cfg.d/slurmstack-machines-driver"
EXCLUDED: Final = """\
# The NVIDIA driver's libraries must be those of the machine's kernel: slurmd's start shows them to jobs, and others
# would be found first. So dpkg leaves them out of every package, also of those that are installed or upgraded later.
path-exclude=/usr/lib/*-linux-gnu/nvidia/*/lib*.so*
path-exclude=/usr/lib/*-linux-gnu/libcuda.so*
path-exclude=/usr/lib/*-linux-gnu/libcudadebugger.so*
path-exclude=/usr/lib/*-linux-gnu/libnvcuvid.so*
path-exclude=/usr/lib/*-linux-gnu/libnvoptix.so*
# libnvidia-*, but not libnvidia-container*, which is no part of the driver. No path-include: for its sake dpkg would
# keep links that lead nowhere. What programs are linked with where no driver is, in .../stubs/, stays.
path-exclude=/usr/lib/*-linux-gnu/libnvidia-[!c]*.so*
path-exclude=/usr/lib/*-linux-gnu/libnvidia-c[!o]*.so*
path-exclude=/usr/lib/*-linux-gnu/libnvidia-co[!n]*.so*
"""

Runner = Callable[[Sequence[str]], str]
"""Runs a command to its end and returns what it wrote to its standard output."""


class RefusedError(Exception):
    """What a person has to change, in one line."""


def install(names: Sequence[str], *, cuda: bool, run: Runner, root: Path = Path("/")) -> None:
    """Install packages by name, and CUDA. Raises RefusedError and subprocess.CalledProcessError."""
    if not names and not cuda:
        return
    suite = _codename(root)
    if cuda:
        for path in _sources(root):
            path.write_text(with_components(path.read_text(encoding="utf-8"), suite), encoding="utf-8")
        (root / EXCLUDES).write_text(EXCLUDED, encoding="utf-8")
    # Else apt goes on with what it could fetch, and a package would seem not to exist.
    run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])
    if cuda and (absent := missing(CUDA, run)):
        raise RefusedError(
            f"images.jail.cuda: Debian {suite} has no {' and no '.join(absent)}; "
            "leave cuda out, and install NVIDIA's packages, or pip's or conda's, in the jail"
        )
    if absent := missing(names, run):
        where = " ".join(["main", *COMPONENTS]) if cuda else "main (contrib and non-free are for cuda: true)"
        raise RefusedError(f"images.jail.packages: Debian {suite} has no package {', '.join(absent)} in {where}")
    with tempfile.TemporaryDirectory() as work:
        first = [_stand_in(Path(work), run), *CUDA] if cuda else []
        run(["apt-get", "install", "--yes", "--no-install-recommends", *first, *names])


def missing(names: Iterable[str], run: Runner) -> list[str]:
    """Those of the names under which apt knows no package. Names of what only other packages provide are such, too."""
    wanted = list(names)
    lines = run(["apt-cache", "madison", *wanted]).splitlines() if wanted else []
    known = {line.partition("|")[0].strip() for line in lines}
    return [name for name in wanted if name not in known]


def with_components(text: str, suite: str) -> str:
    """A list of apt's sources, of either form, with what CUDA is in added to Debian's own."""

    def extended(found: re.Match[str]) -> str:
        return found[0] + "".join(f" {name}" for name in COMPONENTS if name not in found[0].split())

    text = re.sub(rf"^deb(?:-src)?\s.*\s{suite}\S*\s.*\bmain\b.*$", extended, text, flags=re.MULTILINE)
    if not re.search(rf"^Suites:.*\b{suite}", text, re.MULTILINE | re.IGNORECASE):
        return text
    return re.sub(r"^Components:.*\bmain\b.*$", extended, text, flags=re.MULTILINE | re.IGNORECASE)


def _stand_in(work: Path, run: Runner) -> str:
    control = work / "package/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.parent.parent.chmod(0o755)
    control.write_text(STAND_IN, encoding="utf-8")
    package = work / "slurmstack-machines-driver.deb"
    run(["dpkg-deb", "--root-owner-group", "--build", str(control.parent.parent), str(package)])
    # apt fetches as a user of its own, who has to read it.
    work.chmod(0o755)
    return str(package)


def _sources(root: Path) -> list[Path]:
    apt = root / "etc/apt"
    found = [apt / "sources.list", *apt.glob("sources.list.d/*.list"), *apt.glob("sources.list.d/*.sources")]
    return [path for path in found if path.is_file()]


def _codename(root: Path) -> str:
    text = (root / "etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", text, re.MULTILINE)
    return found[1] if found else ""


def _run(command: Sequence[str]) -> str:
    """Show what apt says, as it says it; what is asked for an answer is not shown."""
    quiet = command[0] == "apt-cache"
    done = subprocess.run(
        command, check=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if quiet else None,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.stdout or ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Install packages of Debian, and CUDA, into the jail.")
    parser.add_argument("--cuda", action="store_true", help="CUDA and NCCL, of Debian's contrib and non-free")
    parser.add_argument("names", nargs="*", metavar="PACKAGE")
    options = parser.parse_args(arguments)
    try:
        install(options.names, cuda=options.cuda, run=_run)
    except RefusedError as error:
        print(f"{MARK}{error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"`{' '.join(error.cmd)}` failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
