"""Build Kubernetes, CoreDNS and the pause program from their Go modules, once per set of inputs; and others on demand.

Go's caches stay below our cache while a build is unfinished, so that an interrupted one goes on where it stopped, and
are removed when it succeeds: Kubernetes alone needs about 4 GB of them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from local import files, paths
from local.errors import LocalError
from local.shell import follow

if TYPE_CHECKING:
    from local.report import Report, Step

# Every version that the local cluster pins. Debian's own programs are not pinned: they are the suite's.

KUBERNETES_VERSION = "v1.34.4"
"""Must equal the requirement in `kubernetes/go.mod`; a test compares them."""

COREDNS_VERSION = "v1.14.1"
"""Must equal the requirement in `coredns/go.mod`; a test compares them. The last one for Go 1.24 (Debian 13)."""

KUBE_STATE_VERSION = "v2.15.0"
"""Must equal the requirement in `kube-state/go.mod` and the tag of `slurm.local_cluster.KUBE_STATE_IMAGE`; a test
compares them."""

PAUSE = "1"
"""Our own pause program; counted up when its source changes what it does."""

GO_MINIMUM = (1, 24)
"""The highest `go` line of our modules: an older Go cannot build them."""

PAUSE_IMAGE = f"localhost/slurmstack/pause:{PAUSE}"
COREDNS_IMAGE = f"localhost/slurmstack/coredns:{COREDNS_VERSION}"

_KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
_WAY_OUT = "run again, it goes on where it stopped; where modules cannot be fetched, check `go env GOPROXY`"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Go module of ours and what is built from it."""

    name: str
    title: str
    packages: tuple[str, ...]
    ldflags: tuple[str, ...] = field(default=())

    @property
    def source(self) -> Path:
        """Give the directory with go.mod."""
        return paths.SOURCES / self.name


def _kubernetes_ldflags(version: str) -> tuple[str, ...]:
    """Without these every component reports v0.0.0, and kubectl warns of a skew."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"-X {_VERSION_PACKAGE}.{key}={value}" for key, value in values.items())


MODULES = (
    Module(
        name="kubernetes",
        title=f"Build Kubernetes {KUBERNETES_VERSION} (once, about 7 minutes on two cores)",
        packages=tuple(f"k8s.io/kubernetes/cmd/{program}" for program in _KUBERNETES_PROGRAMS),
        ldflags=_kubernetes_ldflags(KUBERNETES_VERSION),
    ),
    Module(
        name="coredns",
        title=f"Build CoreDNS {COREDNS_VERSION} (once, about a minute)",
        packages=(".",),
    ),
    Module(name="pause", title="Build the pause program", packages=(".",)),
)

KUBE_STATE = Module(
    name="kube-state",
    title=f"Build kube-state-metrics {KUBE_STATE_VERSION} (once, about 2 minutes on two cores)",
    packages=("k8s.io/kube-state-metrics/v2",),
)
"""Not part of the cluster: built for the first stack that wants it."""


@dataclass(frozen=True)
class Binaries:
    """The programs built by us."""

    directories: tuple[Path, ...]

    def path(self, program: str) -> str:
        """Give a program's absolute path."""
        for directory in self.directories:
            if (directory / program).is_file():
                return str(directory / program)
        raise LocalError(f"{program} has not been built", "run `up`, which builds it")


def module_key(source: Path, ldflags: Sequence[str], machine: str) -> str:
    """Compute the digest of all that decides what is built: module files, sources, link flags, processor."""
    digest = hashlib.sha256("\0".join([machine, *ldflags]).encode())
    for path in sorted(source.iterdir()):
        if path.suffix in {".go", ".mod", ".sum"}:
            content = path.read_bytes()
            digest.update(f"\0{path.name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:12]


def directory_of(module: Module) -> Path:
    """Give the place of a module's programs; exists only when all of them are built."""
    return paths.cache_bin() / f"{module.name}-{module_key(module.source, module.ldflags, platform.machine())}"


def binaries() -> Binaries:
    """Give the programs, without building anything."""
    return Binaries(tuple(directory_of(module) for module in MODULES))


def ensure_binaries(report: Report) -> Binaries:
    """Build what is not built yet. `LocalError` without a usable Go, space or module proxy."""
    for module in MODULES:
        ensure_module(module, report)
    return binaries()


def ensure_module(module: Module, report: Report) -> Path:
    """Build one module if it is not built yet, and give the directory with its programs. `LocalError` as above."""
    target = directory_of(module)
    if not target.is_dir():
        go = find_go()
        with report.step(module.title) as step:
            _build(go, module, target, step)
    return target


def find_go() -> str:
    """Give the path of a Go that is new enough."""
    needed = ".".join(map(str, GO_MINIMUM))
    search = f"{os.environ.get('PATH', '')}:/usr/local/go/bin:/usr/lib/go/bin"
    go = shutil.which("go", path=search)
    if go is None:
        raise LocalError("Go is not installed; Kubernetes is built with it", f"install Go {needed} or newer")
    done = subprocess.run([go, "version"], check=False, capture_output=True, text=True)
    version = parse_go_version(done.stdout)
    if version is None or version < GO_MINIMUM:
        found = (done.stdout or done.stderr).strip()
        raise LocalError(f"Go {needed} or newer is needed, {go} is {found!r}", "put a newer Go first on PATH")
    return go


def parse_go_version(text: str) -> tuple[int, int] | None:
    """Read major and minor from the output of `go version`."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _go_caches(module: Module) -> Path:
    return paths.cache() / "go" / module.name


def _go_env(module: Module) -> dict[str, str]:
    """Keep the user's proxy settings, but not build flags and workspace: the result must not depend on them."""
    caches = _go_caches(module)
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOCACHE": str(caches / "build"),
        "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
        "GOMODCACHE": str(caches / "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _build(go: str, module: Module, target: Path, step: Step) -> None:
    """Run Go, tell its lines as they come (modules that it downloads, then packages), and explain a failure."""
    caches = _go_caches(module)
    caches.mkdir(parents=True, exist_ok=True)
    with files.whole_directory(target) as output:
        ldflags = " ".join(["-s", "-w", *module.ldflags])
        command = [go, "build", "-v", "-trimpath", "-ldflags", ldflags, "-o", f"{output}/", *module.packages]
        done = 0

        def on_line(line: str) -> None:
            nonlocal done
            done += 1
            step.progress(done, 0, line.removeprefix("go: "))

        status, tail = follow(command, on_line, env=_go_env(module), cwd=module.source)
        if status != 0:
            # Names of packages that went well say nothing.
            telling = [line for line in tail if re.search(r"[: ]", line) and not line.startswith("go: downloading")]
            raise LocalError(f"building {module.name} failed: {'; '.join((telling or tail)[-4:])}", _WAY_OUT)
    shutil.rmtree(caches, ignore_errors=True)
