"""A stack file compared with an earlier one, or with what Pulumi's state holds. Nothing is asked of any cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cli.change.change import Change, of_recording, of_states
from cli.change.compare import compare
from cli.change.effects import Effect, effects
from cli.program.recording import Made, Recording, record
from cli.program.values import Resource, Secret, contains, from_state
from cli.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What it takes to come from one state of a stack to another."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    resources: tuple[Resource, ...] = ()
    """All resources that are to be."""
    recording: Recording = field(default_factory=Recording)
    """The run of the program that registered them."""


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


def _comparison(stack: Stack, before: Sequence[Resource], after: Sequence[Resource]) -> Comparison:
    changes = compare(before, after)
    found = effects(changes, stack.config, old=before)
    return Comparison(changes=tuple(changes), effects=found, resources=tuple(after))


def _states(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (document.get("deployment") or {}).get("resources") or []


def of_export(document: Mapping[str, Any]) -> list[Resource]:
    """The resources of a document that `pulumi stack export` printed."""
    return of_states(_states(document))


def _made(document: Mapping[str, Any]) -> dict[tuple[str, str], Made]:
    """The cloud's resources as they are, so that ids and addresses in the new program are the real ones."""
    made = {}
    for item in _states(document):
        if item["type"].startswith("nebius:") and not item.get("delete"):
            outputs = from_state(item.get("outputs") or {})
            known = {name: value for name, value in outputs.items() if not contains(value, Secret)}
            made[item["type"], item["urn"].rsplit("::", 1)[1]] = Made(id=item.get("id", ""), outputs=known)
    return made
