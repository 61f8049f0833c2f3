"""Nothing in a stack file is silently taken for something else; Pulumi and our own commands read the same."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pulumi.runtime
import pytest
from pydantic import BaseModel

from components.stack import stack_config
from config import ConfigError, load_stack_file
from config.cluster import ClusterConfig
from config.load import read_sections
from config.sections.cloud import NebiusCloud
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

WRONG: dict[type, tuple[Any, ...]] = {bool: ("off", "true", 1, 0), int: ("4", True, 4.0)}
"""What Python or YAML might take for a value of a type."""


def fields(annotation: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], type]]:
    """Place and type of every value below an annotation that is a number or a switch and nothing else."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from fields(arguments[0], path)
    elif origin in (Union, types.UnionType):
        kinds = [argument for argument in arguments if argument is not type(None)]
        if len(kinds) == 1:
            yield from fields(kinds[0], path)
    elif origin is dict:
        yield from fields(arguments[1], (*path, "team"))
    elif origin is tuple:
        yield from fields(arguments[0], (*path, 0))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from fields(field.annotation, (*path, name))
    elif annotation in WRONG:
        yield path, annotation


def all_fields() -> dict[str, tuple[tuple[str | int, ...], type]]:
    sections = {name: field.annotation for name, field in ClusterConfig.model_fields.items()}
    found = [item for name, annotation in sections.items() for item in fields(annotation, (name,))]
    found += fields(NebiusCloud, ("cloud",))
    return {".".join(map(str, path)): (path, kind) for path, kind in found}


def written(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Sections with nothing but this value at its place, and the kind of cloud that has the most keys."""
    for part in reversed(path):
        value = {part: value} if isinstance(part, str) else [value]
    cloud = {**value.pop("cloud", {}), "kind": "nebius"}
    return {**value, "cloud": cloud}


def shown(value: Any) -> str:
    """As YAML has it."""
    return repr(value) if isinstance(value, str) else json.dumps(value)


def test_a_switch_is_true_or_false_and_a_number_is_a_number_wherever_it_is_written() -> None:
    found = all_fields()
    assert {"protect", "licenses.team", "worker_nodes.team.drain_timeout"} <= {*found}
    taken = [
        (where, value)
        for where, (path, kind) in found.items()
        for value in WRONG[kind]
        if not any(line.startswith(f"{where}: {shown(value)} ") for line in complaints(written(path, value)))
    ]
    assert taken == []


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
