"""The checker of Nebius resources finds what the service would refuse; the table of what can never change is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from components.clouds.nebius import immutable
from components.clouds.nebius.immutable import IMMUTABLE
from tests.graph import nebius_api

# The table of what can never change


@pytest.mark.parametrize("type_", nebius_api.REQUESTS)
def test_what_the_api_marks_as_immutable_is_in_the_table(type_: str) -> None:
    assert nebius_api.immutable_paths(type_) <= set(IMMUTABLE[type_])


@pytest.mark.parametrize("type_", IMMUTABLE)
def test_the_table_names_inputs_that_there_are(type_: str) -> None:
    known = {"parentId", "name", "labels", *_paths(nebius_api.request_class(type_).DESCRIPTOR.fields_by_name["spec"])}
    assert set(IMMUTABLE[type_]) <= known


def test_the_table_has_every_type_of_ours() -> None:
    tokens = {value for name, value in vars(immutable).items() if name.isupper() and isinstance(value, str)}
    assert tokens == set(IMMUTABLE) == set(nebius_api.REQUESTS)


def _paths(field: Any, prefix: str = "") -> Iterator[str]:
    for part in field.message_type.fields:
        yield f"{prefix}{part.json_name}"
        if part.message_type is not None and prefix.count(".") < 2:
            yield from _paths(part, f"{prefix}{part.json_name}.")
