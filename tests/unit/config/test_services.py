"""The REST API, images, rules at submission, and settings that say the same thing as a section."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from config import load_config
from config.schema import stack_file_schema
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import with_sections

EXTERNAL: dict[str, Any] = {"host": "db.example", "password": {"name": "db", "key": "password"}}


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("accounts", {"Physics": {}}),
        ("accounts", {"physics": {"max_wall": "1 day"}}),
        ("accounts", {"physics": {"fairshare": "parents"}}),
        ("accounts", {"physics": {"grp_tres": {"gpu": 1}}}),
        ("qos", {"a b": {}}),
        ("users", {"Alice": {"uid": 10001}}),
        ("users", {"alice": {"uid": 10001, "accounts": ["A B"]}}),
        ("partitions", {"1st": {"pools": ["cpu"]}}),
        ("reservations", {"r": {"start": "tomorrow"}}),
        ("accounting", {"retention": {"jobs": "3years"}}),
        ("sssd", {"secret": "SSSD"}),
    ],
)
def test_editors_see_wrong_names_and_values_too(section: str, value: Any) -> None:
    document = {"config": {f"slurmstack:{name}": part for name, part in with_sections(**{section: value}).items()}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, stack_file_schema())


def test_editors_accept_what_we_accept() -> None:
    sections = with_sections(
        accounts={"ml": {"fairshare": "parent", "grp_tres": {"gres/gpu:h100": 8}}, "cv": {"fairshare": 3}},
        users={
            "alice": {"uid": 10001, "accounts": ["ml"]},
            "bob": {"uid": 10002, "accounts": {"ml": {"max_wall": "unlimited"}}},
        },
        reservations={
            "r": {"start": "2999-01-01T00:00", "duration": "1-0", "node_count": 1, "users": ["alice"]}
        },
        licenses={"ansys": 3},
        accounting={"retention": {"jobs": "90days", "steps": None}, "database": {"external": EXTERNAL}},
        sssd={"secret": "sssd"},
    )  # fmt: skip
    load_config(sections)
    jsonschema.validate(
        {"config": {f"slurmstack:{name}": part for name, part in sections.items()}}, stack_file_schema()
    )


def test_keys_and_values_of_kubernetes_are_taken() -> None:
    annotations = {"service.beta.kubernetes.io/aws-load-balancer-type": "any text, at all!"}
    sections = with_change(stacks.existing(), "login.annotations", annotations)
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100", "a": "", "B_c.d-e": "x" * 63}
    sections = with_change(sections, "worker_nodes.cpu.node_selector", selector)
    sections = with_change(sections, "worker_nodes.cpu.tolerations", [{"key": "a.b/c", "value": ""}, {"key": "d"}])
    assert load_config(sections).worker_nodes["cpu"].node_selector == selector
