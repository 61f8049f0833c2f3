"""The JSON schema of a stack file, so that editors complete and check it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from config.base import Section
from config.cluster import ClusterConfig
from config.descriptions import descriptions
from config.load import PROJECT


def stack_file_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole `Pulumi.<stack>.yaml`."""
    schema = _only_matching_names(ClusterConfig.model_json_schema(mode="validation"))
    _describe(schema)
    sections = schema["properties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "slurmstack stack file",
        "description": "Pulumi.<stack>.yaml of a slurmstack cluster. Generated from config/; do not edit.",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [f"{PROJECT}:{name}" for name in schema.get("required", [])],
                "properties": {f"{PROJECT}:{name}": section for name, section in sections.items()},
                "propertyNames": {
                    "anyOf": [
                        {"not": {"pattern": f"^{PROJECT}:"}},
                        {"enum": [f"{PROJECT}:{name}" for name in sections]},
                    ]
                },
            }
        },
        "$defs": schema["$defs"],
    }


def _describe(schema: dict[str, Any]) -> None:
    """Put in what the fields say of themselves."""
    models: list[type[BaseModel]] = [Section]
    for model in models:  # grows meanwhile
        models += model.__subclasses__()
        # Two models of the same name are called by their modules, too.
        names = (model.__name__, f"{model.__module__}.{model.__qualname__}".replace(".", "__"))
        shapes = [*(schema["$defs"].get(name, {}) for name in names), *([schema] if model is ClusterConfig else [])]
        for name, text in descriptions(model).items():
            for shape in shapes:
                if name in shape.get("properties", {}):
                    shape["properties"][name].setdefault("description", text)


def _only_matching_names(schema: Any) -> Any:
    """The schema with every map of named things closed for names that its pattern does not match."""
    if isinstance(schema, list):
        return [_only_matching_names(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _only_matching_names(part) for key, part in schema.items()}
    if isinstance(closed.get("patternProperties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


if __name__ == "__main__":
    print(json.dumps(stack_file_schema(), indent=1, sort_keys=True))
