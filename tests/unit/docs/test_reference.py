"""The reference of the stack file: what is committed is what the models say, and each example is accepted."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
import yaml
from pydantic import TypeAdapter

from config import reference
from config.load import _lists_to_tuples, _Loader
from config.schema import field_of, stack_file_schema

ENTRIES = [entry for _, entry in reference.entries() if entry.key]


def test_the_pages_are_what_the_models_say() -> None:
    committed = {page.name: page.read_text(encoding="utf-8") for page in reference.FOLDER.glob("*.md")}
    assert committed == reference.pages(), "write them anew: make schema"


def test_each_key_of_the_schema_is_there() -> None:
    schema = stack_file_schema()
    sections = set(schema["properties"]["config"]["properties"])
    assert sections == {f"slurmstack:{name}" for names in reference.PAGES.values() for name in names.split()}
    wanted = {(model, key) for model, shape in schema["$defs"].items() for key in shape["properties"]}
    # What a user has in an account are keys of accounts, and said there.
    there = {(model, one.key) for one in ENTRIES for model in (one.model, one.model.replace("Account", "Association"))}
    assert wanted - there == set()


@pytest.mark.parametrize("entry", [one for one in ENTRIES if one.example is not None], ids=lambda one: one.key)
def test_each_example_is_accepted(entry: reference.Entry) -> None:
    field = field_of(entry.model, entry.key)
    annotation: Any = Annotated[field.annotation, field]
    value = yaml.load(entry.example or "", _Loader)
    TypeAdapter(annotation).validate_python(_lists_to_tuples(value))


def test_only_keys_that_have_keys_have_no_example() -> None:
    shapes = stack_file_schema()["$defs"]
    for entry in ENTRIES:
        if entry.example is None:
            assert "$ref" in str(shapes[entry.model]["properties"][entry.key]), entry


def test_what_holds_without_a_key_is_said_whole() -> None:
    """A source range without its default reads as if nobody might connect, where everybody may."""
    text = " ".join(" ".join(page.split()) for page in reference.pages().values())
    found = [
        sentence
        for shape in stack_file_schema()["$defs"].values()
        for one in shape["properties"].values()
        for sentence in re.split(r"(?<=[.])\s+(?=[A-Z`])", " ".join(one.get("description", "").split()))
        if sentence.startswith(("Default", "Left out:", "None:", "null", "Required"))
    ]
    assert len(found) > 60
    assert [one for one in found if one not in text] == []


@pytest.mark.parametrize(("key", "kind"), [("resources", "existing"), ("cpus", "existing"), ("preset", "nebius")])
def test_what_one_kind_of_cloud_requires_is_marked(key: str, kind: str) -> None:
    lines = [line for line in reference.pages()["nodes.md"].splitlines() if line.strip().startswith(f"- `{key}`")]
    assert any(f"Required with the kind `{kind}`." in line for line in lines)
