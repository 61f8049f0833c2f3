"""Push the images of all roles, and learn under which digests the registry has them."""

from __future__ import annotations

from cli.errors import Failure
from cli.images.names import ImageNames
from cli.images.runner import Runner
from cli.images.tools import Tool
from local.report import Report
from slurm.images import ROLES


def push_images(tool: Tool, names: ImageNames, runner: Runner, report: Report) -> dict[str, str]:
    """Push all four and return each role's digest. Raises Failure before the first if one of them is not there."""
    ensure_built(tool, names)
    digests = {}
    for role in ROLES:
        with report.step(f"Push {role}") as step:
            digests[role] = tool.push(names.reference(role), runner, lambda line: step.progress(0, 0, line[:60]))
            step.note(digests[role])
    return digests


def ensure_built(tool: Tool, names: ImageNames) -> None:
    """See that the tool has all four, under these very names: what has another name may be another build."""
    missing = [reference for reference in names.references.values() if not tool.has(reference)]
    if missing:
        raise Failure(
            f"{tool.name} has no {', '.join(missing)}",
            hint="build them with `slurmstack images build` and the same options; a change in images/ changes the tag",
        )
