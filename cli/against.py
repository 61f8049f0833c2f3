"""A stack file compared with an earlier one, or with what Pulumi's state holds. Nothing is asked of any cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cli.changes import SYMBOLS
from cli.effects import Effect, effects
from cli.errors import USAGE, Failure, Refused
from cli.recording import Made, Recording, record
from cli.replacements import Recorded, ResourceChange, compare, contains_secret, of_export, of_recording, opaque
from cli.stack import Stack, open_stack
from config import ConfigError


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What it takes to come from one state of a stack to another."""

    changes: tuple[ResourceChange, ...]
    effects: tuple[Effect, ...]
    resources: tuple[Recorded, ...] = ()
    """All resources that are to be."""
    recording: Recording = field(default_factory=Recording)
    """The run of the program that registered them."""

    @property
    def refused(self) -> tuple[Effect, ...]:
        """What cannot or must not be done."""
        return tuple(effect for effect in self.effects if effect.refused)

    def counts(self) -> dict[str, int]:
        """Number of resources by action."""
        found = Counter(change.action for change in self.changes)
        return {action: found[action] for action in SYMBOLS if found[action]}

    def as_data(self) -> dict[str, Any]:
        """The comparison for scripts."""
        return {
            "changes": [
                {"action": change.action, "type": change.resource.type, "name": change.resource.name}
                for change in self.changes
            ],
            "effects": [asdict(effect) for effect in self.effects],
            "refused": len(self.refused),
        }


def against_file(stack: Stack, file: Path) -> Comparison:
    """The stack compared with an earlier version of its file. Raises Failure if that version is no valid stack file."""
    before = record(earlier(file).sections, stack=stack.name)
    return against_recording(stack, before, record(stack.sections, stack=stack.name))


def earlier(file: Path) -> Stack:
    """An earlier version of a stack file. Raises Failure if it is not a valid one."""
    try:
        return open_stack(file)
    except ConfigError as error:
        raise Failure(
            f"--against {file}: {error.problems[0].where}: {error.problems[0].message}",
            hint="name a version of the stack file that this version of slurmstack accepts",
            code=USAGE,
        ) from error


def against_recording(stack: Stack, before: Recording, after: Recording) -> Comparison:
    """Two runs of the program compared; `stack` is the one of the later run."""
    return _comparison(stack, of_recording(before), of_recording(after))


def against_state(stack: Stack, document: Mapping[str, Any]) -> Comparison:
    """The stack compared with a document that `pulumi stack export` printed."""
    recording = record(stack.sections, stack=stack.name, made=_made(document))
    return replace(_comparison(stack, of_export(document), of_recording(recording)), recording=recording)


def removal(stack: Stack, document: Mapping[str, Any]) -> Comparison:
    """What it means to destroy everything in a document that `pulumi stack export` printed."""
    return _comparison(stack, of_export(document), [])


def refuse(comparison: Comparison) -> None:
    """Raise Refused if anything in the comparison is refused."""
    refused = comparison.refused
    if refused:
        listed = "\n".join(f"  {effect.kind} {effect.name}: {effect.refused}" for effect in refused)
        count = f"{len(refused)} change{'s' if len(refused) > 1 else ''}"
        raise Refused(f"the stack file asks for {count} that cannot be made:\n{listed}")


def _comparison(stack: Stack, before: Sequence[Recorded], after: Sequence[Recorded]) -> Comparison:
    changes = compare(before, after)
    found = effects(changes, stack.config)
    return Comparison(changes=tuple(changes), effects=tuple(found), resources=tuple(after))


def _made(document: Mapping[str, Any]) -> dict[tuple[str, str], Made]:
    """The cloud's resources as they are, so that ids and addresses in the new program are the real ones."""
    resources = (document.get("deployment") or {}).get("resources") or []
    made = {}
    for item in resources:
        if item["type"].startswith("nebius:") and not item.get("delete"):
            outputs = opaque(item.get("outputs") or {})
            known = {name: value for name, value in outputs.items() if not contains_secret(value)}
            made[item["type"], item["urn"].rsplit("::", 1)[1]] = Made(id=item.get("id", ""), outputs=known)
    return made
