"""Which images a command works on: registry, tag and Slurm version, from options and the stack file."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from cli.errors import USAGE, Failure
from cli.stack import Stack
from config.sections.services import CUDA_VERSIONS, NO_CUDA, Images
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

    @property
    def is_unregistered(self) -> bool:
        """Whether these images are meant for this machine's tools only."""
        return self.registry == DEFAULT_REGISTRY


def choose_names(stack: Stack, *, registry: str | None, tag: str | None, slurm_version: str | None) -> ImageNames:
    """Options first, then the stack file, then what the sources say. Raises Failure for what no image can be called."""
    version = slurm_version or stack.config.slurm.version
    if version not in DEBIAN_SUITES:
        raise Failure(f"no images for Slurm {version}", hint=f"known: {', '.join(DEBIAN_SUITES)}", code=USAGE)
    _check(
        "--registry",
        "registry",
        registry,
        "a host and a path such as registry.example.com/slurm: lower case, no https://",
    )
    _check("--tag", "tag", tag, "up to 128 letters, digits, dots, dashes and underscores")
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


def _check(option: str, field: str, value: str | None, wanted: str) -> None:
    try:
        Images.model_validate({field: value})
    except ValidationError:
        raise Failure(f"{option} {value!r} is not {wanted}", code=USAGE) from None
