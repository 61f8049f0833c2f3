"""buildah, kept to our own directories: no daemon, no registry, nothing below /var/lib or the user's home.

Every call runs in a mount namespace of its own, so that mounts of a call that was killed are gone with it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.debian import SECURITY_VARIABLE
from local.errors import LocalError
from local.shell import follow
from local.tools import Tools

SHARED_CACHE = Path("/var/lib/containers")
"""buildah's libraries keep what they know of compressed layers here, without a setting: each call finds ours there."""

_ENTER = 'mount --bind "$0" "$1" && shift && exec "$@"'
"""$0: our directory, $1: where buildah expects it, then the command."""

_CONTAINER = """\
set -eu
container=$(buildah from --pull-never $POLICY "$IMAGE")
trap 'buildah rm "$container" >/dev/null 2>&1 || :' EXIT
ROOT=$(buildah mount "$container")
export ROOT
"""

_NEEDS_NETAVARK = (1, 33)
"""Between 1.28 (Debian 12), which does not look for it, and 1.39 (Debian 13), which does."""


def parse_version(text: str) -> tuple[int, int]:
    """Read major and minor from the output of `buildah --version`; (0, 0) where there is none."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@dataclass(frozen=True, kw_only=True)
class Buildah:
    """One image store."""

    tools: Tools
    directory: Path

    def prepare(self) -> None:
        """Make the store's directories and settings; forget mounts that a machine's restart has ended."""
        for name in ("storage", "shared-cache", "tmp"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # Only counts of mounts live there, and no mount outlives its namespace.
        shutil.rmtree(self.directory / "run", ignore_errors=True)
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)
        (self.directory / "tmp").mkdir()
        storage = (
            f'[storage]\ndriver = "overlay"\nrunroot = "{self.directory}/run"\ngraphroot = "{self.directory}/storage"\n'
        )
        (self.directory / "storage.conf").write_text(storage, encoding="utf-8")
        (self.directory / "registries.conf").write_text("unqualified-search-registries = []\n", encoding="utf-8")
        policy = {"default": [{"type": "insecureAcceptAnything"}]}
        (self.directory / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
        self._satisfy_lookup_of_netavark()

    def _satisfy_lookup_of_netavark(self) -> None:
        """Give newer releases the network program that they look for at every start, though host networks need none.

        Debian 13's buildah ends at once without it; Debian 12's takes it for a wish to use it, and must not see it.
        """
        settings = self.directory / "containers.conf"
        settings.unlink(missing_ok=True)
        if parse_version(self._run(["--version"]).stdout) < _NEEDS_NETAVARK:
            return
        helpers = self.directory / "helpers"
        helpers.mkdir(exist_ok=True)
        (helpers / "netavark").unlink(missing_ok=True)
        (helpers / "netavark").symlink_to("/bin/false")
        text = (
            f'[engine]\nhelper_binaries_dir = ["{helpers}"]\n'
            f'[network]\nnetwork_config_dir = "{self.directory}/networks"\n'
        )
        settings.write_text(text, encoding="utf-8")

    def has_image(self, reference: str) -> bool:
        """Whether the store has an image of this name."""
        done = self._run(["inspect", "--type", "image", reference], check=False)
        return done.returncode == 0

    def images(self) -> list[str]:
        """Names of all images of the store."""
        text = self._run(["images", "--json"]).stdout
        return sorted({name for image in json.loads(text or "[]") for name in image.get("names") or []})

    def remove(self, references: Sequence[str]) -> None:
        """Forget images, and layers that no other image has."""
        if references:
            self._run(["rmi", "--force", *references], check=False)

    def build(
        self,
        *,
        context: Path,
        target: str,
        base: str,
        reference: str,
        arguments: Sequence[str],
        volumes: Sequence[str],
        on_line: Callable[[str], None],
    ) -> None:
        """Build one target of `context`/Containerfile; unchanged steps come from the store."""
        options = ["--layers", "--pull-never", "--format", "oci", "--network", "host", *self._run_options()]
        options += ["--target", target]
        options += ["--build-arg", f"BASE={base}", *(f"--build-arg={argument}" for argument in arguments)]
        options += [f"--volume={volume}" for volume in volumes]
        self.stream(["buildah", "build", *self.policy, *options, "--tag", reference, str(context)], on_line)

    def save(self, references: Sequence[str], archive: Path, on_image: Callable[[int], None]) -> None:
        """Write images to one OCI archive for `ctr -n k8s.io images import`, with each layer once.

        buildah compresses every layer anew; at zlib's fastest that takes no longer than to find out which it has had.
        """
        with tempfile.TemporaryDirectory(prefix=".layout-", dir=archive.parent) as layout:
            for count, reference in enumerate(references):
                on_image(count)
                compression = ["--compression-format", "gzip", "--compression-level", "1"]
                self._run(["push", "--quiet", *compression, *self.policy, reference, f"oci:{layout}:{reference}"])
            _name_for_containerd(Path(layout) / "index.json")
            parts = ["oci-layout", "index.json", "blobs"]
            self.stream(["tar", "--create", f"--file={archive}", f"--directory={layout}", *parts], lambda _: None)

    def read_image(self, reference: str, script: str, env: Mapping[str, str]) -> None:
        """Run a shell script that finds the file system of an image in $ROOT."""
        self.stream(["sh", "-c", f"{_CONTAINER}\n{script}"], lambda _: None, self._container_env(reference, env))

    def commit_directory(
        self, script: str, reference: str, env: Mapping[str, str], on_line: Callable[[str], None]
    ) -> None:
        """Make an image of what a shell script puts into the directory that it finds in $ROOT."""
        commit = (
            'buildah umount "$container" >/dev/null; '
            'buildah commit --quiet $POLICY --format oci "$container" "$REFERENCE"'
        )
        extra = {**self._container_env("scratch", env), "REFERENCE": reference}
        self.stream(["sh", "-c", f"{_CONTAINER}\n{script}\n{commit}"], on_line, extra)

    def _container_env(self, image: str, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, "POLICY": " ".join(self.policy), "IMAGE": image}

    def stream(
        self, command: Sequence[str], on_line: Callable[[str], None], env: Mapping[str, str] | None = None
    ) -> None:
        """Run a command, hand on each line of its output, and raise with the last ones when it fails."""
        status, tail = follow(self.inside(command), on_line, env={**self.environment(), **(env or {})})
        if status != 0:
            raise self._failure(command, "\n".join(tail))

    def _failure(self, command: Sequence[str], output: str) -> LocalError:
        hint = f"the images' sources are in images/; the store is {self.directory}"
        if "-security" in output:
            hint += f"; set {SECURITY_VARIABLE} to a mirror of Debian's security updates, or to `none` to do without"
        return LocalError(f"{' '.join(command[:2])} failed; its last lines:\n{output}", hint)

    def _run(self, arguments: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["buildah", *arguments]
        done = subprocess.run(
            self.inside(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=self.environment(),
            check=False,
        )
        if check and done.returncode != 0:
            raise self._failure(command, done.stderr.strip() or done.stdout.strip())
        return done

    def inside(self, command: Sequence[str]) -> list[str]:
        """Give a command line that runs a command where the store's mounts are its own."""
        SHARED_CACHE.mkdir(parents=True, exist_ok=True)
        own = ["unshare", "--mount", "--propagation", "private"]
        return [*own, "sh", "-c", _ENTER, str(self.directory / "shared-cache"), str(SHARED_CACHE), *command]

    def environment(self) -> dict[str, str]:
        """Give the environment in which buildah finds the store and its settings."""
        env = self.tools.env()
        env["CONTAINERS_STORAGE_CONF"] = str(self.directory / "storage.conf")
        env["CONTAINERS_REGISTRIES_CONF"] = str(self.directory / "registries.conf")
        if (self.directory / "containers.conf").exists():
            env["CONTAINERS_CONF"] = str(self.directory / "containers.conf")
        env["TMPDIR"] = str(self.directory / "tmp")
        return env

    @property
    def policy(self) -> list[str]:
        """The options that name the store's policy for signatures: each command that moves an image needs them."""
        return ["--signature-policy", str(self.directory / "policy.json")]

    def _run_options(self) -> list[str]:
        """For the RUN steps. The limits: buildah would raise them, which a root without CAP_SYS_RESOURCE may not."""
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        return ["--isolation", "oci", "--runtime", self.tools.path("runc"), *limits]


def _name_for_containerd(index: Path) -> None:
    """Say each image's full name in the annotation from which containerd takes it."""
    document = json.loads(index.read_text(encoding="utf-8"))
    for descriptor in document["manifests"]:
        annotations = descriptor["annotations"]
        annotations["io.containerd.image.name"] = annotations["org.opencontainers.image.ref.name"]
    index.write_text(json.dumps(document), encoding="utf-8")
