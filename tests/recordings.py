"""What the program registers for a stack: worked out once for all tests of a process that ask for the same."""

from __future__ import annotations

import copyreg
import json
import pickle
from collections.abc import Mapping
from functools import cache
from typing import Any

from cli.program import recording
from cli.program.recording import Recording, Registration
from cli.program.values import Unknown

copyreg.pickle(Unknown, lambda _: "UNKNOWN")  # there is only one of it, also in a copy


def pod_template(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The template of the pods of a workload, a CronJob's too; None for what has none."""
    spec = inputs.get("spec")
    if not isinstance(spec, dict):
        return None
    return (spec.get("jobTemplate", {}).get("spec") or spec).get("template")


def of_type(recording: Recording, type_: str) -> list[Registration]:
    """Registrations of one type token."""
    return [registration for registration in recording if registration.type == type_]


def record(sections: Mapping[str, Any], *, stack: str, preview: bool = False, **given: Any) -> Recording:
    """What `cli.program.recording.record` gives, which takes half a second of CPU.

    Each caller has a copy of its own, which takes two milliseconds. With values that are `given`, nothing is kept.
    A test that changes the program itself (monkeypatch) asks that one: what it gets is for nobody else.
    """
    if given:
        return recording.record(sections, stack=stack, preview=preview, **given)
    made: Recording = pickle.loads(_recorded(json.dumps(sections), stack, preview=preview))
    return made


@cache
def _recorded(sections: str, stack: str, *, preview: bool) -> bytes:
    return pickle.dumps(recording.record(json.loads(sections), stack=stack, preview=preview))
