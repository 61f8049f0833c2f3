"""What looks right and is not, to Slurm, to Kubernetes or to a store."""

from __future__ import annotations

from typing import Any

import pytest

from config import ConfigError, load_config
from config.load import sections_of
from slurm.conf import render
from tests import stacks
from tests.stacks import with_change


def of_a_directory(path: str, value: Any) -> dict[str, Any]:
    return with_change(with_change(stacks.existing_full(), "sssd", {"secret": "ldap"}), path, value)


def test_a_group_with_a_blank_is_one_group() -> None:
    lines = render(load_config(of_a_directory("partitions.gpu.allow_groups", ["domain users", "hpc"])))["slurm.conf"]
    assert 'AllowGroups="domain users,hpc"' in lines


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 200_000, "is nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "is nested too deeply"),
        ('{"default": {"size": 2}, "default": {"size": 5}}', "has the key 'default' twice"),
    ],
)
def test_text_of_a_section_is_read_as_carefully_as_a_file(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        sections_of({"config": {"slurmstack:worker_nodes": text}}, where=stacks.ROOT)
