"""Which images a command works on: registry, tag and Slurm version, from options and the stack file."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from cli.errors import USAGE, Failure
from cli.stack import Stack
from config.sections.services import Images
from slurm.images import DEBIAN_SUITES, DEFAULT_REGISTRY, ROLES, image_reference, image_tag


@dataclass(frozen=True, kw_only=True)
class ImageNames:
    """The images of one build."""

    registry: str
    tag: str
    slurm_version: str

    def reference(self, role: str) -> str:
        """Full name of the image of one role."""
        return image_reference(role, registry=self.registry, tag=self.tag)

    @property
    def references(self) -> dict[str, str]:
        """Full name of each role's image."""
        return {role: self.reference(role) for role in ROLES}

    @property
    def host(self) -> str:
        """The registry's host, which is what one logs in to."""
        return self.registry.partition("/")[0]

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
    return ImageNames(
        registry=registry or images.registry or DEFAULT_REGISTRY,
        tag=tag or images.tag or image_tag(version),
        slurm_version=version,
    )


def _check(option: str, field: str, value: str | None, wanted: str) -> None:
    try:
        Images.model_validate({field: value})
    except ValidationError:
        raise Failure(f"{option} {value!r} is not {wanted}", code=USAGE) from None
