"""Stacks as `slurmstack` opens them, and the state that Pulumi would keep of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cli.change.change import of_recording
from cli.change.engine_plan import EnginePlan, compared
from cli.program.recording import Recording
from cli.program.values import SIGNATURE, Secret
from cli.stack import Stack, open_stack
from tests.recordings import record


def stack_of(directory: Path, sections: dict[str, Any], name: str = "test") -> Stack:
    file = directory / f"Pulumi.{name}.yaml"
    config = {f"slurmstack:{key}": value for key, value in sections.items()}
    file.write_text(yaml.safe_dump({"config": config}, sort_keys=False), encoding="utf-8")
    return open_stack(file)


def state_of(recording: Recording, outputs_of: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """What `pulumi stack export` would print after these resources were made, in the shape that a real one has.

    `outputs_of`: by type, what the provider tells besides the inputs.
    """
    outputs_of = outputs_of or {}

    def encrypted(value: Any) -> Any:
        if isinstance(value, Secret):
            return {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:AAAA:BBBB"}
        if isinstance(value, dict):
            return {key: encrypted(item) for key, item in value.items()}
        return [encrypted(item) for item in value] if isinstance(value, list) else value

    resources: list[dict[str, Any]] = [
        {"urn": "urn:pulumi:test::slurmstack::pulumi:pulumi:Stack::slurmstack-test", "custom": False}
        | {"type": "pulumi:pulumi:Stack", "outputs": {"namespace": "slurm"}}
    ]
    for item in recording:
        inputs = {"__defaults": [], **encrypted(item.inputs)}
        entry = {"urn": item.urn, "custom": item.custom, "type": item.type, "parent": item.parent}
        if item.custom:
            outputs = {**inputs, **outputs_of.get(item.type, {}), "__pulumi_raw_state_delta": {"obj": {}}}
            entry |= {"id": item.id, "inputs": inputs, "outputs": outputs}
        entry |= {"protect": True} if item.protect else {}
        entry |= {"retainOnDelete": True} if item.retained else {}
        resources.append(entry)
    document = {"version": 3, "deployment": {"manifest": {}, "resources": resources, "metadata": {}}}
    return dict(json.loads(json.dumps(document)))


def compare_files(directory: Path, before: dict[str, Any], after: dict[str, Any]) -> EnginePlan:
    old = stack_of(directory, before, "old")
    stack = stack_of(directory, after)
    runs = (record(sections, stack=stack.name) for sections in (old.sections, stack.sections))
    return compared(stack, *map(of_recording, runs))
