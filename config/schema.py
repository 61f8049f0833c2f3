"""The JSON schema of a stack file, so that editors complete and check it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.base import Section
from config.cluster import ClusterConfig
from config.load import PROJECT


def stack_file_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole `Pulumi.<stack>.yaml`."""
    schema = ClusterConfig.model_json_schema(mode="validation")
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


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Names that the schema may have for models: two of the same name are called by their modules, too."""
    found: list[type[BaseModel]] = [Section]
    for model in found:  # grows meanwhile
        found += model.__subclasses__()
        yield model.__name__, model
        yield f"{model.__module__}.{model.__qualname__}".replace(".", "__"), model


def field_of(name: str, key: str) -> FieldInfo:
    """A field of the model that the schema calls so."""
    return next(model.model_fields[key] for one, model in models() if one == name and key in model.model_fields)


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """What each field says of itself: the text below it in the source, also those of models that it inherits from.

    Pydantic's own way (`use_attribute_docstrings`) reads all sources at each start, which was a third of the time that
    `config` takes to load.
    """
    found: dict[str, str] = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        (written,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(written, ast.ClassDef)
        for field, below in pairwise(written.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def _describe(schema: dict[str, Any]) -> None:
    """Put in what the fields say of themselves."""
    for model_name, model in models():
        shape = schema if model is ClusterConfig else schema["$defs"].get(model_name, {})
        for name, text in descriptions(model).items():
            if name in shape.get("properties", {}):
                shape["properties"][name].setdefault("description", text)


if __name__ == "__main__":
    print(json.dumps(stack_file_schema(), indent=1, sort_keys=True))
