"""docker, podman, buildah and the local cluster's own buildah, as one thing that builds, pushes and saves images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.errors import USAGE, Failure
from cli.images.runner import Runner
from local.images import image_store
from local.report import Report

OnLine = Callable[[str], None]

LOCAL = "local"
"""The buildah that the local cluster fetched for itself, with its own image store."""

_PROBE_S = 30.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to build."""

    context: Path
    role: str
    reference: str
    base: str
    platform: str | None = None
    no_cache: bool = False


@dataclass(frozen=True, kw_only=True)
class Tool(ABC):
    """One tool with an image store of its own."""

    tls_verify: bool = True
    launcher: tuple[str, ...] = ()
    """What comes before the program's name."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the program."""

    @property
    @abstractmethod
    def probe(self) -> tuple[str, ...]:
        """Arguments of a command that succeeds only where the program can work."""

    @abstractmethod
    def build(self, order: Order, runner: Runner, on_line: OnLine) -> None:
        """Build one role. Unchanged steps come from the tool's cache."""

    @abstractmethod
    def push(self, reference: str, runner: Runner, on_line: OnLine) -> str:
        """Push an image and return the digest of its manifest, as the registry now has it."""

    @abstractmethod
    def save(self, references: Sequence[str], directory: Path, runner: Runner, on_line: OnLine) -> list[Path]:
        """Write images to archives that containerd can import."""

    @abstractmethod
    def has(self, reference: str) -> bool:
        """Whether the tool's store has an image of this name."""

    def pinned(self, base: str, runner: Runner, on_line: OnLine, *, fresh: bool, platform: str | None) -> str:
        """The base by its digest, as its registry gives it: all roles stand on the same one, whatever the tag does.

        As it is where there is none: an image of this machine's own. `fresh`: ask the registry in any case.
        """
        if base == "scratch" or "@" in base or base.startswith("localhost/"):
            return base
        if fresh or not self.has(base):
            options = [*self._pull_options(), *(["--platform", platform] if platform else [])]
            self._run(runner, ["pull", *options, base], f"pulling {base}", on_line)
        found = _DIGEST.search(self.ask(*self._ask_for_digest, base).stdout)
        return f"{re.sub(r':[^:/]*$', '', base)}@{found[0]}" if found else base

    def _pull_options(self) -> list[str]:
        return []

    @property
    def _ask_for_digest(self) -> tuple[str, ...]:
        return ("image", "inspect", "--format", "{{.RepoDigests}}")

    def tag(self, source: str, target: str) -> None:
        """Give an image another name."""
        done = self.ask("tag", source, target)
        if done.returncode != 0:
            raise Failure(f"{self.name} could not name {source} {target}: {done.stderr.strip()}")

    def command(self, *arguments: str) -> list[str]:
        """The full command line."""
        return [*self.launcher, self.name, *arguments]

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a short command and return what it said, whatever its exit status."""
        try:
            return subprocess.run(
                self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                env=self.environment, timeout=_PROBE_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess([*arguments], 127, "", str(error))

    def _run(self, runner: Runner, arguments: Sequence[str], doing: str, on_line: OnLine) -> list[str]:
        return runner.run(self.command(*arguments), doing=doing, on_line=on_line, env=self.environment)

    def _build_options(self, order: Order) -> list[str]:
        """What all three understand alike."""
        options = ["--file", str(order.context / "Containerfile"), "--target", order.role, "--tag", order.reference]
        options += ["--build-arg", f"BASE={order.base}"]
        options += ["--platform", order.platform] if order.platform else []
        return options + (["--no-cache"] if order.no_cache else [])


class Docker(Tool):
    """The docker command with a daemon that answers."""

    @property
    def name(self) -> str:
        """Name of the program."""
        return "docker"

    @property
    def probe(self) -> tuple[str, ...]:
        """The server's version: only a daemon can tell it."""
        return ("version", "--format", "{{.Server.Version}}")

    def build(self, order: Order, runner: Runner, on_line: OnLine) -> None:
        """Build one role, with BuildKit or the older builder, whichever this docker has."""
        # An attestation would make the image an index of two manifests, which `kind load` cannot import.
        # Read by BuildKit's client only; the older builder has no attestations.
        command = self.command(
            "build", *self._build_options(order), *(["--pull"] if order.no_cache else []), str(order.context)
        )
        environment = {**self.environment, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
        runner.run(command, doing=f"building {order.role}", on_line=on_line, env=environment)

    def push(self, reference: str, runner: Runner, on_line: OnLine) -> str:
        """Push an image; docker's last line is `<tag>: digest: sha256:... size: <bytes>`."""
        tag = reference.rpartition(":")[2]
        lines = self._run(runner, ["push", reference], f"pushing {reference}", on_line)
        found = [line for line in lines if line.startswith(f"{tag}: digest: ")]
        return _digest_in(found[-1] if found else "", self.name, reference)

    def save(self, references: Sequence[str], directory: Path, runner: Runner, on_line: OnLine) -> list[Path]:
        """Write one archive with each layer once."""
        archive = directory / "images.tar"
        self._run(runner, ["save", "--output", str(archive), *references], "saving the images", on_line)
        return [archive]

    def has(self, reference: str) -> bool:
        """Whether docker has an image of this name."""
        return self.ask("image", "inspect", "--format", "{{.Id}}", reference).returncode == 0


class _Containers(Tool):
    """What podman and buildah have in common: they share their libraries."""

    def push(self, reference: str, runner: Runner, on_line: OnLine) -> str:
        """Push an image; the tool writes the digest of the manifest that the registry took into a file."""
        with tempfile.TemporaryDirectory(prefix="slurmstack-push-") as work:
            file = Path(work) / "digest"
            tls = [] if self.tls_verify else ["--tls-verify=false"]
            arguments = ["push", *self.policy, *tls, "--digestfile", str(file), reference, f"docker://{reference}"]
            self._run(runner, arguments, f"pushing {reference}", on_line)
            return _digest_in(file.read_text(encoding="utf-8") if file.exists() else "", self.name, reference)

    @property
    def policy(self) -> tuple[str, ...]:
        """Options that each command which reads or writes an image needs."""
        return ()

    def _pull_options(self) -> list[str]:
        return [*self.policy, *([] if self.tls_verify else ["--tls-verify=false"])]

    def _pull(self, order: Order) -> list[str]:
        tls = [] if self.tls_verify else ["--tls-verify=false"]
        return [*tls, "--pull=always" if order.no_cache else "--pull=missing"]


class Podman(_Containers):
    """The podman command, with or without a machine behind it."""

    @property
    def name(self) -> str:
        """Name of the program."""
        return "podman"

    @property
    def probe(self) -> tuple[str, ...]:
        """Fails where the store cannot be used, or no podman machine runs."""
        return ("info",)

    def build(self, order: Order, runner: Runner, on_line: OnLine) -> None:
        """Build one role."""
        options = [*self._build_options(order), *self._pull(order)]
        self._run(runner, ["build", *options, str(order.context)], f"building {order.role}", on_line)

    def save(self, references: Sequence[str], directory: Path, runner: Runner, on_line: OnLine) -> list[Path]:
        """Write one archive with each layer once."""
        archive = directory / "images.tar"
        arguments = ["save", "--multi-image-archive", "--output", str(archive), *references]
        self._run(runner, arguments, "saving the images", on_line)
        return [archive]

    def has(self, reference: str) -> bool:
        """Whether podman has an image of this name."""
        return self.ask("image", "exists", reference).returncode == 0


@dataclass(frozen=True, kw_only=True)
class Buildah(_Containers):
    """The buildah command."""

    signature_policy: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the program."""
        return "buildah"

    @property
    def probe(self) -> tuple[str, ...]:
        """Fails where the store cannot be used."""
        return ("info",)

    @property
    def policy(self) -> tuple[str, ...]:
        """Where its own store's policy for signatures is, if not in the system's place."""
        return self.signature_policy

    @property
    def _ask_for_digest(self) -> tuple[str, ...]:
        return ("inspect", "--type", "image", "--format", "{{.FromImageDigest}}")

    def build(self, order: Order, runner: Runner, on_line: OnLine) -> None:
        """Build one role; without --layers, buildah would run each step again each time."""
        options = ["--layers", *self.policy, *self._build_options(order), *self._pull(order)]
        self._run(runner, ["build", *options, str(order.context)], f"building {order.role}", on_line)

    def save(self, references: Sequence[str], directory: Path, runner: Runner, on_line: OnLine) -> list[Path]:
        """Write one archive per image: buildah cannot put several into one."""
        archives = []
        for number, reference in enumerate(references):
            archive = directory / f"image-{number}.tar"
            arguments = ["push", *self.policy, reference, f"docker-archive:{archive}:{reference}"]
            self._run(runner, arguments, f"saving {reference}", on_line)
            archives.append(archive)
        return archives

    def has(self, reference: str) -> bool:
        """Whether buildah has an image of this name."""
        return self.ask("inspect", "--type", "image", "--format", "{{.FromImageID}}", reference).returncode == 0


TOOLS: dict[str, type[Tool]] = {"docker": Docker, "podman": Podman, "buildah": Buildah}
"""In the order in which they are tried."""


def choose_tool(wanted: str | None, *, tls_verify: bool = True) -> Tool:
    """The tool that was asked for, else the first that works. Raises Failure with what each one says."""
    if wanted is not None and wanted not in TOOLS:
        raise Failure(f"--tool {wanted!r} is none of {', '.join([*TOOLS, LOCAL])}", code=USAGE)
    complaints = []
    for name in [wanted] if wanted else TOOLS:
        tool = TOOLS[name](tls_verify=tls_verify)
        complaint = _complaint(tool)
        if complaint is None:
            return _allowed(tool)
        complaints.append(f"{name}: {complaint}")
    listed = "\n".join(f"  {text}" for text in complaints)
    raise Failure(
        f"{f'--tool {wanted}' if wanted else 'no image tool'} {'does not work' if wanted else 'works'}:\n{listed}",
        hint="install or start docker, podman or buildah; on Debian as root, `--tool local` needs none of them",
    )


def _allowed(tool: Tool) -> Tool:
    if isinstance(tool, Docker) and not tool.tls_verify:
        raise Failure(
            "docker's daemon alone decides which registries may be used without TLS",
            hint="list the registry under insecure-registries in daemon.json, or choose podman or buildah with --tool",
            code=USAGE,
        )
    return tool


def _complaint(tool: Tool) -> str | None:
    """Why a tool cannot be used, or None."""
    if shutil.which(tool.name) is None:
        return "is not on PATH"
    done = tool.ask(*tool.probe)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"`{tool.name} {tool.probe[0]}` ended with status {done.returncode}"


@contextmanager
def open_tool(wanted: str | None, report: Report, *, tls_verify: bool = True) -> Iterator[Tool]:
    """The chosen tool, to work on images that were built; `local` holds off the local cluster's builds meanwhile."""
    if wanted != LOCAL:
        yield choose_tool(wanted, tls_verify=tls_verify)
        return
    with image_store(report) as store:
        launcher, environment = store.launcher()
        yield Buildah(
            tls_verify=tls_verify, launcher=tuple(launcher), environment=environment,
            signature_policy=tuple(store.signature_policy()),
        )  # fmt: skip


def _digest_in(text: str, tool: str, reference: str) -> str:
    found = _DIGEST.search(text)
    if found is None:
        raise Failure(
            f"{tool} pushed {reference} but did not say its digest", hint="is this an old version? try another --tool"
        )
    return found[0]
