"""Whole stack files for Nebius: the committed example, the smallest, wrong ones, and the schema for editors."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config import load_config, load_stack_file
from config.nebius.needs import needs
from config.nebius.platforms import nebius_catalogue, worker_resources
from config.schema import stack_file_schema
from tests import stacks
from tests.stacks import ROOT
from tests.unit.config.messages import H100, POOL, complaints, minimum

CATALOGUE = nebius_catalogue()


def test_the_committed_example_is_valid_and_has_what_its_comments_say() -> None:
    config = load_stack_file(ROOT / "Pulumi.nebius.yaml")
    pool = config.worker_nodes["default"]
    assert (pool.size, pool.resources.gpus.count, pool.gpu_cluster is not None) == (2, 8, True)
    assert needs(config).gpus == {"gpu-h100-sxm": 16}
    assert config.jail.size == "2Ti"
    assert config.protects_data


def test_project_subnet_region_and_one_pool_are_enough() -> None:
    config = load_config(stacks.nebius_minimum())
    resources = config.worker_nodes["default"].resources
    assert (resources.cpus, resources.memory, resources.gpus.count) == (126, "1518Gi", 8)


def test_the_subnet_can_be_left_to_us() -> None:
    sections = stacks.nebius_minimum()
    del sections["cloud"]["subnet_id"]
    assert load_config(sections).cloud.kind == "nebius"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_-./: ä", max_size=8), inner, max_size=3)
        ),
        max_leaves=4,
    ),
    st.sampled_from(
        [
            *(f"cloud.{name}" for name in ("region", "name", "kubernetes", "system_nodes", "quotas", "ssh_keys")),
            *(f"{POOL}.{name}" for name in ("platform", "preset", "gpu_cluster", "boot_disk", "resources", "taints")),
            *("jail", "mounts", "controller", "login", "cluster"),
        ]
    ),
)
def test_any_value_anywhere_gives_a_configuration_or_readable_lines(value: Any, path: str) -> None:
    sections = minimum((path, value))
    try:
        assert load_config(sections)
    except ValueError:
        assert all(line and "\n" not in line for line in complaints(sections))


@pytest.mark.parametrize(("path", "value"), [("cloud.kubernetes", ["\n"]), (f"{POOL}.taints", "\n")])
def test_a_message_is_one_line_whatever_was_written(path: str, value: Any) -> None:
    (told,) = complaints(minimum((path, value)))
    assert told.isprintable()


def test_the_schema_accepts_the_example_and_the_minimum_without_resources() -> None:
    schema = stack_file_schema()
    jsonschema.validate(yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text(encoding="utf-8")), schema)
    jsonschema.validate(document(stacks.nebius_minimum()), schema)
    jsonschema.validate(document(stacks.existing()), schema)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cloud", {"kind": "nebius", "region": "eu-north1"}),
        ("cloud", {"project_id": "project-a", "region": "eu-north1"}),
        ("cloud", {"kind": "aws"}),
        ("cloud.context", "prod"),
        (f"{POOL}.preset", None),
        ("worker_nodes", {"default": {"size": 1}}),
        ("worker_nodes", {"default": {"size": 1, "resources": {"cpus": 1}}}),
        (f"{POOL}.resources", {"cpu": 1}),
    ],
)
def test_the_schema_refuses_what_an_editor_can_know(path: str, value: Any) -> None:
    sections = minimum((path, value))
    if value is None:
        section = sections["worker_nodes"]["default"]
        del section[path.rsplit(".", 1)[1]]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document(sections), stack_file_schema())


def document(sections: dict[str, Any]) -> dict[str, Any]:
    """A whole stack file with these sections."""
    return {"config": {f"slurmstack:{name}": section for name, section in sections.items()}}


def test_part_of_the_resources_may_be_written_where_the_preset_gives_the_rest() -> None:
    sections = minimum((f"{POOL}.resources", {"cpu_request": "100"}))
    jsonschema.validate(document(sections), stack_file_schema())
    resources = load_config(sections).worker_nodes["default"].resources
    expected = worker_resources(CATALOGUE.platforms["gpu-h100-sxm"].presets[H100])
    assert (resources.cpu_request, resources.cpus, resources.memory) == ("100", expected["cpus"], expected["memory"])
