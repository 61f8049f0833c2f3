"""Nothing in a stack file is silently taken for something else; Pulumi and our own commands read the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi.runtime
import pytest

from components.cluster import stack_config
from config import ConfigError, load_stack_file
from config.cluster import ClusterConfig
from config.load import read_sections
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

STACK = """\
config:
  slurmstack:worker_nodes: {a: {size: 1, resources: {cpus: 1, memory: 1Gi}}}
  slurmstack:partitions: {main: {pools: [a], max_time: 1:30:00}}
"""


@pytest.mark.parametrize("value", ["off", "yes", "'off'", "'no'", "1", "'1'", "On"])
def test_protection_is_on_or_off_by_true_and_false_only_as_pulumi_sees_it(tmp_path: Path, value: str) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(f"{STACK}  slurmstack:protect: {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"protect: .* is neither true nor false"):
        load_stack_file(file)
    with pytest.raises(ConfigError, match=r"protect: .* is neither true nor false"):
        as_pulumi_has_it({**stacks.dev(), "protect": value.strip("'")})


@pytest.mark.parametrize("value", ["true", "'true'"])
def test_what_pulumi_config_set_writes_is_read_as_pulumi_reads_it(tmp_path: Path, value: str) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    login = "'{\"size\": 2}'"
    file.write_text(f"{STACK}  slurmstack:protect: {value}\n  slurmstack:login: {login}\n", encoding="utf-8")
    config = load_stack_file(file)
    assert (config.protect, config.login.size, config.partitions["main"].max_time) == (True, 2, "1:30:00")
    assert as_pulumi_has_it({**read_sections(file), "protect": "true", "login": '{"size": 2}'}) == config


def as_pulumi_has_it(sections: dict[str, Any], *, encrypted: tuple[str, ...] = ()) -> ClusterConfig:
    """The configuration as the program reads it from the engine, which hands over text."""
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in sections.items()}
    pulumi.runtime.set_all_config(
        {f"slurmstack:{name}": value for name, value in values.items()}, [f"slurmstack:{name}" for name in encrypted]
    )
    try:
        return stack_config()
    finally:
        pulumi.runtime.set_all_config({}, [])


def test_an_encrypted_value_is_refused_by_name_both_ways_and_never_printed() -> None:
    cipher = {"secure": "v1:c2VjcmV0"}
    sections = with_change(with_change(stacks.dev(), "jail.size", cipher), "slurm.settings", cipher)
    found = complaints(with_change(sections, "worker_nodes.default.features", [cipher]))
    assert sorted(line.partition(": is encrypted")[0] for line in found) == [
        "jail.size",
        "slurm.settings",
        "worker_nodes.default.features.0",
    ]
    assert all("c2VjcmV0" not in line for line in found)
    with pytest.raises(ConfigError) as caught:
        as_pulumi_has_it(with_change(stacks.dev(), "jail.size", "hunter2"), encrypted=("jail",))
    assert str(caught.value).startswith("jail: is encrypted")
    assert "hunter2" not in str(caught.value)


def test_the_engine_s_own_table_is_searched_for_misspelt_prefixes() -> None:
    pulumi.runtime.set_all_config({"slurm:users": "{}", "kubernetes:cluster": "x"}, [])
    try:
        with pytest.raises(ConfigError, match=r"^slurm:users: .*: write `slurmstack:users:`$"):
            stack_config()
    finally:
        pulumi.runtime.set_all_config({}, [])
