"""Host programs (etcd, containerd, buildah, ...) from the machine's own Debian suite, without installing them.

What the host already has is used as it is. The rest is downloaded by apt, which checks the suite's signatures, and
unpacked below our cache. Nothing is installed: a package would start services, and `containerd` would push out the
`containerd.io` that the user's docker runs on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local import files, paths
from local.errors import LocalError
from local.shell import run

if TYPE_CHECKING:
    from local.report import Report, Step

CNI_PLUGINS = "usr/lib/cni"

_LAYOUT = "1"
"""Part of the key; counted up when the way of unpacking changes."""

_BIN_DIRS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_LIB_GLOBS = ("usr/lib/*-linux-gnu", "lib/*-linux-gnu", "usr/lib/*-linux-gnu/nss")
_APT_TIMEOUT_S = 900
_BATCH = 8  # packages per call of apt, which needs a second to read its lists; few enough to show progress


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Programs (or files) that we run, and the Debian packages that bring them, the first that the suite has."""

    packages: tuple[str, ...]
    programs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths, which may have `*` in them."""


REQUIREMENTS = (
    Requirement(packages=("etcd-server", "etcd"), programs=("etcd",)),
    Requirement(packages=("containerd",), programs=("containerd", "containerd-shim-runc-v2", "ctr")),
    Requirement(packages=("runc",), programs=("runc",)),
    Requirement(packages=("containernetworking-plugins",), files=(f"{CNI_PLUGINS}/ptp",)),
    Requirement(packages=("nftables",), programs=("nft",)),
    Requirement(packages=("iproute2",), programs=("ip",)),
    Requirement(packages=("util-linux",), programs=("nsenter", "unshare")),
    Requirement(packages=("mount",), programs=("mount", "umount")),
    Requirement(packages=("buildah",), programs=("buildah",)),
    Requirement(packages=("debootstrap",), programs=("debootstrap",)),
    Requirement(packages=("debian-archive-keyring",), files=("usr/share/keyrings/debian-archive-keyring.gpg",)),
    Requirement(packages=("wget",), programs=("wget",)),
    Requirement(packages=("openssh-client",), programs=("ssh",)),
)


@dataclass(frozen=True)
class Tools:
    """Where the programs are: our unpacked tree (`None` where the host has everything), then the host."""

    tree: Path | None

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the environment in which programs of the tree run and find each other and their libraries."""
        env = dict(os.environ if base is None else base)
        env["PATH"] = ":".join(_host_path(env.get("PATH", "")))
        if self.tree is None:
            return env
        programs = [str(self.tree / part) for part in _BIN_DIRS if (self.tree / part).is_dir()]
        env["PATH"] = ":".join([*programs, env["PATH"]])
        libraries = [str(found) for pattern in _LIB_GLOBS for found in sorted(self.tree.glob(pattern))]
        if libraries:
            env["LD_LIBRARY_PATH"] = ":".join([*libraries, *filter(None, [env.get("LD_LIBRARY_PATH")])])
        scripts = self.tree / "usr/share/debootstrap"
        if scripts.is_dir():
            env["DEBOOTSTRAP_DIR"] = str(scripts)
        return env

    def path(self, program: str) -> str:
        """Give the absolute path of a program; `LocalError` where neither the tree nor the host has it."""
        found = shutil.which(program, path=self.env()["PATH"])
        if found is None:
            msg = f"the program {program} is neither installed nor in {self.tree or 'our cache'}"
            raise LocalError(msg, "remove cache/tools in the slurmstack directory and run again")
        return found

    def file(self, relative: str) -> Path:
        """Give the path of a data file such as `usr/share/keyrings/x.gpg`: in the tree, else on the host."""
        if self.tree and (self.tree / relative).exists():
            return self.tree / relative
        return Path("/") / relative


def ensure_tools(report: Report, requirements: Iterable[Requirement] = REQUIREMENTS) -> Tools:
    """Return programs, by default those of the local cluster and the image builds; fetch what the host lacks, once."""
    missing = _missing(requirements)
    if not missing:
        return Tools(None)
    tree = paths.cache_tools() / tools_key(missing, _suite(), platform.machine())
    if tree.is_dir():
        return Tools(tree)
    names = ", ".join(requirement.packages[0] for requirement in missing)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise LocalError(
            f"these programs are missing and this is not a Debian: {names}", "install them, then run again"
        )
    with report.step("Fetch host programs from Debian (nothing is installed)") as step:
        _fetch_into(tree, missing, step)
    return Tools(tree)


def available_tools() -> Tools:
    """Return the programs that are there, without fetching any (taking a cluster down must work without a network)."""
    missing = _missing(REQUIREMENTS)
    tree = paths.cache_tools() / tools_key(missing, _suite(), platform.machine())
    return Tools(tree if missing and tree.is_dir() else None)


def tools_key(missing: Sequence[Requirement], suite: str, machine: str) -> str:
    """Name the tree by what is in it: another suite or another set of packages gets another directory."""
    text = "\0".join([_LAYOUT, suite, machine, *("|".join(requirement.packages) for requirement in missing)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def planned_downloads(simulation: str) -> list[tuple[str, str]]:
    """List packages and versions that `apt-get -s install` would newly install.

    Upgrades of installed packages (`Inst name [old] (new ...)`) are left out: the host's own version is used, and
    a second copy of `passwd` or `libc6` in front of it could only do harm.
    """
    return re.findall(r"^Inst (\S+) \((\S+) [^)\n]*\)", simulation, re.MULTILINE)


def _missing(requirements: Iterable[Requirement]) -> list[Requirement]:
    search = ":".join(_host_path(os.environ.get("PATH", "")))
    return [
        requirement
        for requirement in requirements
        if not all(shutil.which(program, path=search) for program in requirement.programs)
        or not all(any(Path("/").glob(name)) for name in requirement.files)
    ]


def _host_path(path: str) -> list[str]:
    """Give the user's PATH and the system directories, which a plain user's PATH on Debian does not name."""
    return list(dict.fromkeys([*filter(None, path.split(":")), *(f"/{part}" for part in _BIN_DIRS)]))


def _suite() -> str:
    release = platform.freedesktop_os_release()
    return f"{release.get('ID', '')} {release.get('VERSION_ID', '')} {release.get('VERSION_CODENAME', '')}"


def _fetch_into(tree: Path, missing: Sequence[Requirement], step: Step) -> None:
    with (
        files.whole_directory(tree) as unpacked,
        tempfile.TemporaryDirectory(prefix=files.UNFINISHED, dir=tree.parent) as archives,
    ):
        _download(missing, Path(archives), step)
        debs = sorted(Path(archives).glob("*.deb"))
        for count, deb in enumerate(debs):
            step.progress(count, len(debs), f"unpacking {deb.name}")
            run(["dpkg-deb", "-x", str(deb), str(unpacked)], timeout_s=_APT_TIMEOUT_S)
        size = sum(deb.stat().st_size for deb in debs) / 1e6
        step.note(f"{len(debs)} packages, {size:.0f} MB")


def _download(missing: Sequence[Requirement], archives: Path, step: Step) -> None:
    """Try with the host's package lists; when they are absent or old, with fresh lists in a directory of our own."""
    try:
        _download_by([], missing, archives, step)
    except LocalError:
        lists = archives / "lists"
        (lists / "partial").mkdir(parents=True)
        options = ["-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=root"]
        step.progress(0, 0, "updating package lists")
        # The exit status is not looked at: one unreachable source of the user's is no reason to stop.
        patience = ["-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20"]
        _run(["apt-get", "-q", *options, *patience, "update"])
        _download_by(options, missing, archives, step)


def _download_by(options: Sequence[str], missing: Sequence[Requirement], archives: Path, step: Step) -> None:
    named = [name for requirement in missing for name in requirement.packages]
    known = parse_candidates(_run(["apt-cache", *options, "policy", *named]).stdout)
    # Where no list has any of a program's packages, apt says so of the first.
    wanted = [next((name for name in each.packages if name in known), each.packages[0]) for each in missing]
    plan = dict(planned_downloads(_apt([*options, "-s", "--no-install-recommends", "install", *wanted])))
    for name in wanted:
        # Installed, but without the program that we look for (removed by hand): fetch that package all the same.
        plan.setdefault(name, "")
    references = [f"{name}={version}" if version else name for name, version in plan.items()]
    for start in range(0, len(references), _BATCH):
        batch = references[start : start + _BATCH]
        step.progress(start, len(plan), f"downloading {batch[0].partition('=')[0]}")
        _apt([*options, "-o", "APT::Sandbox::User=root", "download", *batch], cwd=archives)


def parse_candidates(policy: str) -> set[str]:
    """Read the output of `apt-cache policy`: a package without a candidate is known by name only."""
    return set(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (?!\(none\))", policy, re.MULTILINE))


def _apt(arguments: Sequence[str], cwd: Path | None = None) -> str:
    return _run(["apt-get", "-q", *arguments], cwd=cwd, check=True).stdout


def _run(command: Sequence[str], *, check: bool = False, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    return run(command, env=env, check=check, timeout_s=_APT_TIMEOUT_S, cwd=cwd)
