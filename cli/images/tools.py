"""docker, podman, buildah and the local cluster's own buildah, as one thing that builds, pushes and saves images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
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

_PROBES = {"docker": ("version", "--format", "{{.Server.Version}}"), "podman": ("info",), "buildah": ("info",)}
"""What succeeds only where the program can work, in the order in which they are tried: docker's daemon answers, a
podman machine runs, the store can be used."""

_LOOK_UP = {
    "docker": ("image", "inspect", "--format", "{{.Id}}"),
    "podman": ("image", "exists"),
    "buildah": ("inspect", "--type", "image", "--format", "{{.FromImageID}}"),
}
_ASK_FOR_DIGEST = {
    "docker": ("image", "inspect", "--format", "{{.RepoDigests}}"),
    "podman": ("image", "inspect", "--format", "{{.RepoDigests}}"),
    "buildah": ("inspect", "--type", "image", "--format", "{{.FromImageDigest}}"),
}

_PROBE_S = 30.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def _environment() -> dict[str, str]:
    # An attestation would make the image an index of two manifests, which `kind load` cannot import.
    # Read by BuildKit's client only; the other builders have no attestations.
    return {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool with an image store of its own."""

    name: str
    """Of the program."""
    tls_verify: bool = True
    launcher: tuple[str, ...] = ()
    """What comes before the program's name."""
    environment: Mapping[str, str] = field(default_factory=_environment)
    policy: tuple[str, ...] = ()
    """Where the policy for signatures is, if not in the system's place: for each command that moves an image."""

    def build(
        self,
        context: Path,
        role: str,
        reference: str,
        runner: Runner,
        on_line: OnLine,
        *,
        base: str,
        platform: str | None = None,
        no_cache: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        """Build one role of `context`/Containerfile, with NAME=VALUE for its ARGs. Steps may come from a cache."""
        options = ["--file", str(context / "Containerfile"), "--target", role, "--tag", reference]
        for argument in (f"BASE={base}", *arguments):
            options += ["--build-arg", argument]
        options += ["--platform", platform] if platform else []
        options += ["--no-cache"] if no_cache else []
        if self.name == "docker":
            options += ["--pull"] if no_cache else []
        else:
            options += [*self._access, "--pull=always" if no_cache else "--pull=missing"]
        if self.name == "buildah":
            options.append("--layers")  # else it would run each step again each time
        self._run(runner, ["build", *options, str(context)], f"building {role}", on_line)

    def push(self, reference: str, runner: Runner, on_line: OnLine) -> str:
        """Push an image and return the digest of its manifest, as the registry now has it."""
        if self.name == "docker":  # its last line is `<tag>: digest: sha256:... size: <bytes>`
            lines = self._run(runner, ["push", reference], f"pushing {reference}", on_line)
            start = f"{reference.rpartition(':')[2]}: digest: "
            return _digest_in("".join(line for line in lines if line.startswith(start)), self.name, reference)
        with tempfile.TemporaryDirectory(prefix="slurmstack-push-") as work:
            file = Path(work) / "digest"
            arguments = ["push", *self._access, "--digestfile", str(file), reference, f"docker://{reference}"]
            self._run(runner, arguments, f"pushing {reference}", on_line)
            return _digest_in(file.read_text(encoding="utf-8") if file.exists() else "", self.name, reference)

    def save(self, references: Sequence[str], directory: Path, runner: Runner, on_line: OnLine) -> list[Path]:
        """Write images to archives that containerd can import: one with each layer once, or one per image (buildah)."""
        if self.name == "buildah":
            archives = [directory / f"image-{number}.tar" for number, _ in enumerate(references)]
            for archive, reference in zip(archives, references, strict=True):
                arguments = ["push", *self.policy, reference, f"docker-archive:{archive}:{reference}"]
                self._run(runner, arguments, f"saving {reference}", on_line)
            return archives
        archive = directory / "images.tar"
        several = ["--multi-image-archive"] if self.name == "podman" else []
        self._run(runner, ["save", *several, "--output", str(archive), *references], "saving the images", on_line)
        return [archive]

    def has(self, reference: str) -> bool:
        """Whether the tool's store has an image of this name."""
        return self.ask(*_LOOK_UP[self.name], reference).returncode == 0

    def pinned(self, base: str, runner: Runner, on_line: OnLine, *, fresh: bool, platform: str | None) -> str:
        """The base by its digest, as its registry gives it: all roles stand on the same one, whatever the tag does.

        As it is where there is none: an image of this machine's own. `fresh`: ask the registry in any case.
        """
        if base == "scratch" or "@" in base or base.startswith("localhost/"):
            return base
        if fresh or not self.has(base):
            options = [*self._access, *(["--platform", platform] if platform else [])]
            self._run(runner, ["pull", *options, base], f"pulling {base}", on_line)
        found = _DIGEST.search(self.ask(*_ASK_FOR_DIGEST[self.name], base).stdout)
        return f"{re.sub(r':[^:/]*$', '', base)}@{found[0]}" if found else base

    def tag(self, source: str, target: str) -> None:
        """Give an image another name."""
        done = self.ask("tag", source, target)
        if done.returncode != 0:
            raise Failure(f"{self.name} could not name {source} {target}: {done.stderr.strip()}")

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a short command and return what it said, whatever its exit status."""
        try:
            return subprocess.run(
                self._command(arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                env=self.environment, timeout=_PROBE_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess([*arguments], 127, "", str(error))

    @property
    def _access(self) -> list[str]:
        """Options of what talks to registries; docker has none, its daemon decides."""
        return [*self.policy, *([] if self.tls_verify else ["--tls-verify=false"])]

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [*self.launcher, self.name, *arguments]

    def _run(self, runner: Runner, arguments: Sequence[str], doing: str, on_line: OnLine) -> list[str]:
        return runner.run(self._command(arguments), doing=doing, on_line=on_line, env=self.environment)


def choose_tool(wanted: str | None, *, tls_verify: bool = True) -> Tool:
    """The tool that was asked for, else the first that works. Raises Failure with what each one says."""
    if wanted is not None and wanted not in _PROBES:
        raise Failure(f"--tool {wanted!r} is none of {', '.join([*_PROBES, LOCAL])}", code=USAGE)
    complaints = []
    for name in [wanted] if wanted else _PROBES:
        tool = Tool(name=name, tls_verify=tls_verify)
        complaint = _complaint(tool)
        if complaint is None and name == "docker" and not tls_verify:
            raise Failure(
                "docker's daemon alone decides which registries may be used without TLS",
                hint="list the registry under insecure-registries in daemon.json, "
                "or choose podman or buildah with --tool",
                code=USAGE,
            )
        if complaint is None:
            return tool
        complaints.append(f"{name}: {complaint}")
    listed = "\n".join(f"  {text}" for text in complaints)
    raise Failure(
        f"{f'--tool {wanted}' if wanted else 'no image tool'} {'does not work' if wanted else 'works'}:\n{listed}",
        hint="install or start docker, podman or buildah; on Debian as root, `--tool local` needs none of them",
    )


def _complaint(tool: Tool) -> str | None:
    """Why a tool cannot be used, or None."""
    if shutil.which(tool.name) is None:
        return "is not on PATH"
    done = tool.ask(*_PROBES[tool.name])
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"`{tool.name} {_PROBES[tool.name][0]}` ended with status {done.returncode}"


@contextmanager
def open_tool(wanted: str | None, report: Report, *, tls_verify: bool = True) -> Iterator[Tool]:
    """The chosen tool, to work on images that were built; `local` holds off the local cluster's builds meanwhile."""
    if wanted != LOCAL:
        yield choose_tool(wanted, tls_verify=tls_verify)
        return
    with image_store(report) as store:
        yield Tool(
            name="buildah", tls_verify=tls_verify, launcher=tuple(store.inside([])), environment=store.environment(),
            policy=tuple(store.policy),
        )  # fmt: skip


def _digest_in(text: str, tool: str, reference: str) -> str:
    found = _DIGEST.search(text)
    if found is None:
        raise Failure(
            f"{tool} pushed {reference} but did not say its digest", hint="is this an old version? try another --tool"
        )
    return found[0]
