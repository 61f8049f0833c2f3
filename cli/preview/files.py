"""The preview of a change from an earlier stack file, for `validate --against`. No cluster and no cloud is asked."""

from __future__ import annotations

from pathlib import Path

from cli.change.change import of_recording
from cli.change.engine_plan import compared
from cli.errors import USAGE, Failure
from cli.preview.document import Preview
from cli.program.recording import record
from cli.stack import Stack, open_stack
from config import ConfigError


def of_files(stack: Stack, file: Path) -> Preview:
    """What the change from an earlier stack file means. Asks no cluster and no cloud, and needs no keys."""
    old = _earlier(file)
    runs = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    planned = compared(stack, *map(of_recording, runs))
    return Preview(
        stack=stack.name,
        against="file",
        # Keys are made once, whatever the stack file says.
        changes=tuple(item for item in planned.changes if not item.resource.type.startswith("random:")),
        effects=planned.effects,
    )


def _earlier(file: Path) -> Stack:
    """An earlier version of a stack file. Raises Failure if it is not a valid one."""
    try:
        return open_stack(file)
    except ConfigError as error:
        raise Failure(
            f"--against {file}: {error.problems[0].where}: {error.problems[0].message}",
            hint="name a version of the stack file that this version of slurmstack accepts",
            code=USAGE,
        ) from error
