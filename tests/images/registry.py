"""A real registry on this machine, and real image tools with stores of their own."""

from __future__ import annotations

import base64
import json
import platform
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local import paths, tools
from local.report import PlainReport

USER, PASSWORD = "pusher", "secret"
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
"""bcrypt of the password; the registry takes no other hash."""


def fetch(package: str) -> tools.Tools:
    """Programs of a Debian package, unpacked in the cache like those of the local cluster."""
    requirement = tools.Requirement(packages=(package,), programs=(package,))
    tree = paths.cache_tools() / tools.tools_key([requirement], tools._suite(), platform.machine())
    if not tree.is_dir():
        with PlainReport().step(f"Fetch {package}") as step:
            tools._fetch_into(tree, [requirement], step)
    return tools.Tools(tree)


@dataclass
class Registry:
    """Debian's docker-registry on a port of its own."""

    directory: Path
    with_password: bool = False
    launcher: Sequence[str] = ()
    """What comes before the program, for a registry in another network namespace."""
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port, as an image's name has them."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.port = self.port or _free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        config: dict[str, object] = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(self.directory / "data")}},
            "http": {"addr": self.address},
        }
        if self.with_password:
            (self.directory / "htpasswd").write_text(_HTPASSWD, encoding="utf-8")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(self.directory / "htpasswd")}}
        file = self.directory / "config.json"  # JSON is YAML
        file.write_text(json.dumps(config), encoding="utf-8")
        program = fetch("docker-registry").path("docker-registry")
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self.launcher, program, "serve", str(file)], stdout=log, stderr=subprocess.STDOUT
            )
        if not self.launcher:
            self._await()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=10)

    def _await(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.directory / "log").read_text()
                time.sleep(0.05)


def basic_auth(password: str) -> str:
    """Name and password as HTTP and the tools' credential files have them."""
    return base64.b64encode(f"{USER}:{password}".encode()).decode()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


_ENTER = """\
mkdir -p "$0/lib/containers" "$0/lib/$1" "$0/run"
mount --rbind "/var/lib/$1" "$0/lib/$1"
mount --rbind "$0/lib" /var/lib
mount --bind "$0/run" /run
shift
exec "$@"
"""
"""A /var/lib of the tool's own, with the programs' cache in it. The machine's gets no directory `containers`, which
another image build there would remove under a tool that has something mounted on it."""


def install_podman(bin_directory: Path, store: Path) -> None:
    """Put Debian's podman on a PATH, with a store of its own where it looks for the machine's."""
    found = fetch("podman")
    _write_wrapper(bin_directory / "podman", store, found.path("podman"), found.env())


def _home(store: Path) -> Path:
    """A home directory with a policy for signatures, which a machine without the tools' packages lacks."""
    directory = store / "home/.config/containers"
    directory.mkdir(parents=True)
    (directory / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    return store / "home"


def _write_wrapper(script: Path, store: Path, program: str, environment: Mapping[str, str]) -> None:
    names = ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF")
    settings = {**{name: environment[name] for name in names if name in environment}, "HOME": str(_home(store))}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    root = paths.root()
    cache = root.relative_to("/var/lib").parts[0] if root.is_relative_to("/var/lib") else "dpkg"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _ENTER, str(store), cache, program]
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\n{exports}exec {shlex.join(command)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    assert shutil.which(script.name, path=str(script.parent))
