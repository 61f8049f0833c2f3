"""Which images a command works on: registry, tag and Slurm version, from options and the stack file. And pinning them.

Registry and digests are written into a stack file, in which all but this section is left as it is. The result is read
again and compared with what was wanted before the file is written: one that is laid out in another way stays as it is,
and the lines to add are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cli.errors import USAGE, Failure
from cli.stack import Stack
from config.load import PROJECT, plain
from config.sections.services import CUDA_VERSIONS, NO_CUDA
from local.files import write_whole
from slurm.images import (
    DEBIAN_SUITES,
    DEFAULT_REGISTRY,
    NO_EXTRAS,
    ROLES,
    JailExtras,
    image_reference,
    image_tags,
    jail_extras,
)


@dataclass(frozen=True, kw_only=True)
class ImageNames:
    """The images of one build."""

    registry: str
    tag: str
    jail_tag: str = ""
    """Of the jail's image where it has another, for what it has besides."""
    slurm_version: str
    extras: JailExtras = NO_EXTRAS

    def reference(self, role: str) -> str:
        """Full name of the image of one role."""
        own = self.jail_tag if role == "jail" else ""
        return image_reference(role, registry=self.registry, tag=own or self.tag)

    @property
    def references(self) -> dict[str, str]:
        """Full name of each role's image."""
        return {role: self.reference(role) for role in ROLES}


def choose_names(stack: Stack, *, registry: str | None, tag: str | None, slurm_version: str | None) -> ImageNames:
    """Options first, then the stack file, then what the sources say. Raises Failure for what no image can be called."""
    version = slurm_version or stack.config.slurm.version
    if version not in DEBIAN_SUITES:
        raise Failure(f"no images for Slurm {version}", hint=f"known: {', '.join(DEBIAN_SUITES)}", code=USAGE)
    images = stack.config.images
    others = tag or registry or images.digests  # of which none takes the place of what runs
    if images.tag is not None and not others and version != stack.config.slurm.version:
        raise Failure(
            f"images.tag of the stack file, {images.tag!r}, names what runs: Slurm {stack.config.slurm.version}",
            hint=f"--tag gives those of Slurm {version} another one",
            code=USAGE,
        )
    if images.jail.cuda and version not in CUDA_VERSIONS:
        raise Failure(f"images.jail.cuda: {NO_CUDA.format(version=version)}", code=USAGE)
    tags = image_tags(version, images, tag)
    return ImageNames(
        registry=registry or images.registry or DEFAULT_REGISTRY,
        tag=tags["controller"],
        jail_tag=tags["jail"],
        slurm_version=version,
        extras=jail_extras(images),
    )


KEY = f"{PROJECT}:images"

_SECTION = re.compile(rf"^(?P<indent> +){KEY}:.*\n(?:\n*(?P=indent) +.*\n)*", re.MULTILINE)
"""The section's key, and its lines."""


def snippet(names: ImageNames, digests: Mapping[str, str]) -> str:
    """The section as a stack file has it, below `config:`."""
    return _lines({KEY: {"registry": names.registry, "digests": dict(digests)}}, "  ")


def pin(file: Path, names: ImageNames, digests: Mapping[str, str]) -> None:
    """Write registry and digests into a stack file, at once or not at all. Raises Failure if that cannot be done."""
    target = file.resolve()
    text = target.read_text(encoding="utf-8")
    wanted = yaml.safe_load(text)
    section = plain(wanted["config"].get(KEY) or {}) | {"registry": names.registry, "digests": dict(digests)}
    wanted["config"][KEY] = section
    edited = _edited(text if text.endswith("\n") else f"{text}\n", section)
    try:
        fits = yaml.safe_load(edited) == wanted
    except yaml.YAMLError:
        fits = False
    if not fits:
        raise Failure(
            f"{file} is written in a way that cannot be edited without loss",
            hint=f"put this below `config:` in it, in place of what it has of {KEY}:\n{snippet(names, digests)}",
        )
    write_whole(target, edited, mode=target.stat().st_mode & 0o777)


def _edited(text: str, section: Mapping[str, Any]) -> str:
    """The text with this section; it may fit nowhere."""
    found = _SECTION.search(text)
    if found is None:
        return re.sub(
            r"^config:.*\n", lambda config: config[0] + _lines({KEY: section}, "  "), text, flags=re.MULTILINE
        )
    return text.replace(found[0], _lines({KEY: section}, found["indent"]), 1)


def _lines(values: Mapping[str, Any], indent: str) -> str:
    dumped = yaml.safe_dump(dict(values), default_flow_style=False, width=1000, sort_keys=False)
    return "".join(f"{indent}{line}" for line in dumped.splitlines(keepends=True))
