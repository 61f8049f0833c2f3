"""Names of the container images: which tag belongs to the sources in `images/`.

The tag is derived from the content of `images/`, so that a changed source gives a changed tag, and a changed tag rolls
exactly the pods that run it. Nothing has to be bumped by hand, and an old checkout finds its own images again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from config.sections.services import Images

ROLES = ("controller", "worker", "login", "jail", "accounting", "database", "rest", "exporter", "monitoring")
"""One image per role; each is a target of `images/Containerfile`."""

DEFAULT_REGISTRY = "localhost/slurmstack"
"""Prefix of images that were built here and never pushed."""

DEBIAN_SUITES = {"24.11": "trixie", "26.05": "forky"}
"""The Debian suite whose own packages carry each Slurm version."""

SOURCES = Path(__file__).resolve().parent.parent / "images"
"""What the images are built from."""


@cache
def content_hash(images_dir: Path = SOURCES) -> str:
    """First 12 hex digits of the SHA-256 over names, modes and contents of all source files below `images_dir`."""
    digest = hashlib.sha256()
    for path in sorted(images_dir.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        content = path.read_bytes()
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(f"{path.relative_to(images_dir)}\0{int(executable)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def image_tag(slurm_version: str) -> str:
    """Tag of the images that these sources build for one Slurm version, for example `24.11-0f3a9c2b7d41`."""
    return f"{slurm_version}-{content_hash()}"


@dataclass(frozen=True, kw_only=True)
class JailExtras:
    """What the jail's image has besides, as the stack file says it."""

    packages: tuple[str, ...] = ()
    """Names of Debian packages, sorted: their order makes no other image."""
    cuda: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments with which the target `jail` of the Containerfile is built."""
        packages = (f"JAIL_PACKAGES={' '.join(self.packages)}",) if self.packages else ()
        return (*packages, *(("JAIL_CUDA=1",) if self.cuda else ()))

    def tag(self, tag: str) -> str:
        """Tag of the jail's image, where the other images have `tag`: the same, unless it has something besides.

        The others keep theirs, so that another package in the jail ends no job.
        """
        if not self.arguments:
            return tag
        return f"{tag}-{hashlib.sha256('|'.join(self.arguments).encode()).hexdigest()[:8]}"


NO_EXTRAS = JailExtras()
"""Of a jail's image with nothing besides."""


def jail_extras(images: Images) -> JailExtras:
    """What a stack wants in its jail's image."""
    return JailExtras(packages=tuple(sorted(images.jail.packages)), cuda=images.jail.cuda)


def image_tags(slurm_version: str, images: Images, tag: str | None = None) -> dict[str, str]:
    """Tag of each role's image: `tag` or the stack file's for all, else what the sources and the stack file say."""
    own = tag or images.tag
    common = own or image_tag(slurm_version)
    return {**dict.fromkeys(ROLES, common), "jail": own or jail_extras(images).tag(common)}


def image_reference(role: str, *, registry: str, tag: str, digest: str | None = None) -> str:
    """Full reference of the image of one role: by its digest where one is given, else by its tag."""
    return f"{registry}/{role}@{digest}" if digest else f"{registry}/{role}:{tag}"
