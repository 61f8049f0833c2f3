"""A Debian archive of packages that are made here, and a root file system that real apt and dpkg install from it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SUITE = "trixie"


class PlayedDebian:
    """An archive with components, and `root`, whose apt knows its main only. Nothing else of the machine is touched."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self._archive = directory / "archive"
        self._work = directory / "work"
        self._architecture = _run(["dpkg", "--print-architecture"])
        for name in (
            "etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d",
            "etc/dpkg/dpkg.cfg.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg/info",
            "var/lib/dpkg/updates", "var/log", "etc/ld.so.conf.d", "sbin",
        ):  # fmt: skip
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "var/lib/dpkg/status").touch()
        (self.root / "etc/os-release").write_text(f'VERSION_CODENAME="{SUITE}"\n')
        (self.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{self._archive} {SUITE} main\n")
        (self.root / "etc/ld.so.conf").write_text("".join(f"/usr/lib/{name}\n" for name in ("x86_64-linux-gnu", "")))
        self._index: dict[str, str] = {}

    def add(
        self, name: str, component: str = "main", *, files: Mapping[str, bytes | Path] | None = None, **fields: str
    ) -> Path:
        """Put a package into the archive. `files`: path -> content, or the target of a symbolic link."""
        tree = self._work / name
        control = {"Package": name, "Version": "1", "Architecture": self._architecture, "Maintainer": "x <x@x>"}
        control |= {**fields, "Description": "played"}
        (tree / "DEBIAN").mkdir(parents=True)
        text = "".join(f"{key}: {value}\n" for key, value in control.items())
        (tree / "DEBIAN/control").write_text(text)
        for path, content in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                (tree / path).symlink_to(content)
            else:
                (tree / path).write_bytes(content)
        package = self._archive / f"pool/{component}/{name}.deb"
        package.parent.mkdir(parents=True, exist_ok=True)
        _run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)])
        content = package.read_bytes()
        more = f"Filename: pool/{component}/{name}.deb\nSize: {len(content)}\n"
        more += f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        self._index[component] = self._index.get(component, "") + text + more + "\n"
        self._write_indices()
        return package

    def _write_indices(self) -> None:
        directory = self._archive / f"dists/{SUITE}"
        sums = ""
        for component in ("main", "contrib", "non-free"):
            path = directory / f"{component}/binary-{self._architecture}/Packages"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._index.get(component, ""))
            content = path.read_bytes()
            sums += f" {hashlib.sha256(content).hexdigest()} {len(content)} {path.relative_to(directory)}\n"
        head = f"Suite: stable\nCodename: {SUITE}\nArchitectures: {self._architecture}\n"
        head += "Components: main contrib non-free\nDate: Wed, 01 Jan 2020 00:00:00 UTC\n"
        (directory / "Release").write_text(f"{head}SHA256:\n{sums}")

    def run(self, command: Sequence[str]) -> str:
        """Run apt, dpkg or ldconfig for `root`."""
        if command[0] == "ldconfig":
            _run([_ldconfig(), "-r", str(self.root)])
            return _run([_ldconfig(), "-C", str(self.root / "etc/ld.so.cache"), *command[1:]])
        settings = self._work / "apt.conf"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(
            f'Dir "{self.root}/";\nDir::State::status "{self.root}/var/lib/dpkg/status";\n'
            f'Dir::Etc::parts "{self.root}/etc/apt/apt.conf.d";\nDir::Log "{self.root}/var/log";\n'
            'Dir::Bin::methods "/usr/lib/apt/methods";\nDir::Bin::dpkg "/usr/bin/dpkg";\nAPT::Sandbox::User "root";\n'
            'Acquire::Retries "0";\n'
            f'DPkg::Options {{"--root={self.root}"; "--force-not-root"; "--force-bad-path"; "--log=/dev/null";}};\n'
        )
        # dpkg reads a file in the home, in the form of those in /etc/dpkg/dpkg.cfg.d, which are the machine's own.
        home = self._work / "home"
        home.mkdir(exist_ok=True)
        lines = [path.read_text() for path in sorted((self.root / "etc/dpkg/dpkg.cfg.d").iterdir())]
        (home / ".dpkg.cfg").write_text("".join(lines))
        return _run(command, {"APT_CONFIG": str(settings), "HOME": str(home)})

    def installed(self) -> set[str]:
        """Names of the packages that dpkg has."""
        lines = self.run(["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "--show", "-f", "${Package}\n"])
        return set(lines.split())


def _ldconfig() -> str:
    return shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin") or "ldconfig"


def _run(command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(more or {})}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr)
        raise error
    return done.stdout.strip("\n") if command[0] == "dpkg" else done.stdout
