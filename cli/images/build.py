"""Build the images of all roles from `images/Containerfile`."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.errors import Failure
from cli.images.names import ImageNames
from cli.images.runner import Runner
from cli.images.tools import LOCAL, Tool, open_tool
from local.images import ensure_images
from local.report import Report, Step
from slurm.images import DEBIAN_SUITES, ROLES, SOURCES, content_hash, image_tag

_STEPS = (
    r"^#\d+ (\[[^\]]+\] .+)",  # BuildKit: #7 [common 3/4] RUN apt-get update
    r"STEP \d+/\d+: (.+)",  # buildah and podman: [2/3] STEP 3/9: RUN apt-get update
    r"^Step \d+/\d+ : (.+)",  # docker's older builder
    r"((?:Get:\d+|Unpacking|Setting up) .+)",  # apt, in a step that takes long
)


def default_base(slurm_version: str) -> str:
    """The image of the Debian suite that carries this Slurm version."""
    return f"docker.io/library/debian:{DEBIAN_SUITES[slurm_version]}-slim"


def build_images(
    tool: Tool,
    names: ImageNames,
    runner: Runner,
    report: Report,
    *,
    base: str | None = None,
    platform: str | None = None,
    no_cache: bool = False,
    sources: Path = SOURCES,
) -> None:
    """Build one role after the other: the tool keeps what they share."""
    with sources_of(names, sources) as context:
        wanted = base or default_base(names.slurm_version)
        with report.step("Look for the base image") as step:
            pinned = tool.pinned(wanted, runner, tell_steps(step), fresh=no_cache, platform=platform)
            step.note(pinned)
        for role in ROLES:
            with report.step(f"Build {role}") as step:
                # No cache for any role: BuildKit finds old steps by their text, even on a base that was built anew.
                tool.build(
                    context, role, names.reference(role), runner, tell_steps(step),
                    base=pinned, platform=platform, no_cache=no_cache,
                    arguments=names.extras.arguments if role == "jail" else (),
                )  # fmt: skip


def build_local(names: ImageNames, report: Report) -> None:
    """Build as the local cluster does: with its own buildah, and a base made from this machine's Debian mirror."""
    built = ensure_images(report, names.slurm_version, names.extras)
    wanted = {role: (built.reference(role), names.reference(role)) for role in ROLES}
    if all(source == target for source, target in wanted.values()):
        return
    with open_tool(LOCAL, report) as tool:
        for source, target in wanted.values():
            tool.tag(source, target)


@contextmanager
def sources_of(names: ImageNames, sources: Path = SOURCES) -> Iterator[Path]:
    """A copy of the sources, so that what is built is what the tag says, whatever happens in the checkout meanwhile."""
    with tempfile.TemporaryDirectory(prefix="slurmstack-images-") as work:
        context = Path(work) / "images"
        shutil.copytree(sources, context, ignore=shutil.ignore_patterns("__pycache__"))
        if names.tag == image_tag(names.slurm_version) and content_hash(context) not in names.tag:
            raise Failure("files in images/ changed just now", hint="run the command again")
        yield context


def tell_steps(step: Step) -> Callable[[str], None]:
    """Show which step of the Containerfile runs, out of a tool's output."""

    def on_line(line: str) -> None:
        for pattern in _STEPS:
            found = re.search(pattern, line)
            if found:
                step.progress(0, 0, found[1][:60])
                return

    return on_line
