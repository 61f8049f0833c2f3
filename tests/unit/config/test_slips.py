"""What looks right and is not, to Slurm, to Kubernetes or to a store."""

from __future__ import annotations

from typing import Any

from config import load_config
from slurm.conf import render
from tests import stacks
from tests.stacks import with_change


def of_a_directory(path: str, value: Any) -> dict[str, Any]:
    return with_change(with_change(stacks.existing_full(), "sssd", {"secret": "ldap"}), path, value)


def test_a_group_with_a_blank_is_one_group() -> None:
    lines = render(load_config(of_a_directory("partitions.gpu.allow_groups", ["domain users", "hpc"])))["slurm.conf"]
    assert 'AllowGroups="domain users,hpc"' in lines
