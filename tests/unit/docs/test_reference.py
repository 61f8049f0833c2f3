"""The reference of the stack file: what is committed is what the models say."""

from __future__ import annotations

import re

from config import reference
from config.schema import stack_file_schema


def test_the_pages_are_what_the_models_say() -> None:
    committed = {page.name: page.read_text(encoding="utf-8") for page in reference.FOLDER.glob("*.md")}
    assert committed == reference.pages(), "write them anew: make schema"


def test_each_key_of_the_schema_is_there() -> None:
    schema = stack_file_schema()
    sections = set(schema["properties"]["config"]["properties"])
    assert sections == {f"slurmstack:{name}" for names in reference.PAGES.values() for name in names.split()}
    there = set(re.findall(r"- `(\w+)", "".join(reference.pages().values())))
    assert {key for shape in schema["$defs"].values() for key in shape["properties"]} <= there
