"""What a stack file may say, and what a reader is told who got it wrong."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config import ConfigError, Problem, load_config, load_stack_file
from config.base import parse_bytes
from config.load import read_document, read_sections
from config.schema import stack_file_schema
from tests import stacks
from tests.stacks import ROOT, with_change
from tests.unit.config.messages import complaints


def test_the_committed_development_stack_is_valid() -> None:
    config = load_stack_file(ROOT / "Pulumi.dev.yaml")
    assert config.worker_nodes["default"].size == 2
    assert config.cloud.is_local


def test_the_shape_that_users_know_is_accepted_as_written() -> None:
    config = load_config(stacks.existing())
    assert config.worker_nodes["cpu"].features == ("avx2",)
    assert config.slurm.settings == {"DefMemPerCPU": 512}


def test_all_errors_are_listed_at_once_across_sections() -> None:
    sections = stacks.dev()
    sections["worker_nodes"] = {"default": {"size": -1, "resources": {"cpus": 0, "memory": "2"}}}
    sections["partitions"] = {"main": {"pools": ["defautl"]}}
    sections["users"] = {"alice": {"uid": 0, "ssh_authorized_keys": ["nonsense"]}}
    sections["login"] = {"size": "two"}
    found = complaints(sections)
    for part in (
        "worker_nodes.default.size",
        "worker_nodes.default.resources.cpus",
        "worker_nodes.default.resources.memory",
        "partitions.main.pools",
        "users.alice.uid",
        "users.alice.ssh_authorized_keys.0",
        "login.size",
    ):
        assert any(complaint.startswith(f"{part}:") for complaint in found), part
    assert len(found) == 7


def test_a_pool_may_have_no_nodes() -> None:
    assert load_config(with_change(stacks.dev(), "worker_nodes.default.size", 0)).worker_nodes["default"].size == 0


@pytest.mark.parametrize(
    "name",
    [
        "Default",
        "a_b",
        "-a",
        "a-",
        "1st",
        "",
        "a" * 41,
        "a.b",
        "ä",
        "controller",
        "login",
        "nodes",
        "all",
        "a b",
        "a\n",
    ],
)
def test_a_pool_name_is_a_short_dns_label_that_is_not_taken(name: str) -> None:
    sections = stacks.dev()
    sections["worker_nodes"] = {name: sections["worker_nodes"]["default"]}
    sections["partitions"] = {"main": {"pools": [name]}}
    assert any(complaint.startswith(f"worker_nodes.{name}: ") for complaint in complaints(sections))


def test_long_names_that_would_collide_when_cut_are_refused() -> None:
    sections = stacks.with_pools(1)
    pool = sections["worker_nodes"]["pool0"]
    sections["worker_nodes"] = {"x" * 60 + "a": pool, "x" * 60 + "b": pool}
    assert len([line for line in complaints(sections) if "40 at most" in line]) == 2


@given(st.integers(0, len(stacks.ALICE_KEY.split()[1]) - 1))
def test_a_cut_key_is_never_taken_for_a_whole_one(length: int) -> None:
    key = f"ssh-ed25519 {stacks.ALICE_KEY.split()[1][:length]}"
    assert complaints(with_change(stacks.dev(), "users.alice", {"uid": 10001, "ssh_authorized_keys": [key]}))


@pytest.mark.parametrize("value", ["1-00:00:00", "30", "1:30:00", "UNLIMITED", "infinite", "2-12", "90:00"])
def test_slurm_s_time_notations_are_accepted(value: str) -> None:
    sections = with_change(stacks.dev(), "partitions.main.max_time", value)
    assert load_config(sections).partitions["main"].max_time == value


def test_an_unquoted_slurm_version_is_understood() -> None:
    assert load_config(with_change(stacks.dev(), "slurm.version", 26.05)).slurm.version == "26.05"


def test_a_stack_file_that_is_missing_or_no_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_stack_file(tmp_path / "Pulumi.none.yaml")
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_stack_file(broken)
    broken.write_text(f"config: {'[' * 3000}", encoding="utf-8")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_stack_file(broken)
    broken.write_text("hello: 1", encoding="utf-8")
    with pytest.raises(ConfigError, match="has no map 'config:'"):
        load_stack_file(broken)

    broken.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        load_stack_file(broken)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        load_stack_file(tmp_path)


def test_an_alias_may_be_used_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text("config: {a: &one {b: [1, 2]}, c: [*one, {d: *one}], e: *one}", encoding="utf-8")
    assert read_document(file)["config"]["e"] == {"b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("config:\n  slurmstack:login: {size: 1}\n  slurmstack:login: {size: 2}\n", "slurmstack:login"),
        ('config:\n  slurmstack:login:\n    size: 1\n    "size": 1\n', "size"),
        ("config: {a: 1,\n  b: [{c: 1, c: 2}]}\n", "c"),
    ],
    ids=["sections", "quoted", "one line"],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path, text: str, key: str) -> None:
    stack = tmp_path / "Pulumi.twice.yaml"
    stack.write_text(text, encoding="utf-8")
    lines = [number for number, line in enumerate(text.splitlines(), 1) for _ in range(line.count(key))]
    with pytest.raises(ConfigError, match=f"the key '{key}' stands in line {lines[-2]} and again in line {lines[-1]}"):
        load_stack_file(stack)


def test_what_is_merged_into_a_map_may_be_said_again(tmp_path: Path) -> None:
    stack = tmp_path / "Pulumi.merged.yaml"
    text = "config:\n  a:a: &a {x: 1, y: 1}\n  a:b: &b {<<: *a, x: 2}\n  slurmstack:login: {<<: *b, y: 3}\n"
    stack.write_text(text, encoding="utf-8")
    assert read_sections(stack) == {"login": {"x": 2, "y": 3}}


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "k", "M", "G"]))
def test_quantities_mean_what_kubernetes_means(number: int, unit: str) -> None:
    factor = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "k": 1000, "M": 1000**2, "G": 1000**3}[unit]
    assert parse_bytes(f"{number}{unit}") == number * factor


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(sorted(stacks.existing())),
)
def test_any_value_in_any_section_gives_a_configuration_or_a_readable_error(value: Any, section: str) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        load_config({**stacks.existing(), section: value})
    except ConfigError as error:
        problems = error.problems
    assert all(problem.where and problem.message for problem in problems)


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((ROOT / "docs" / "stack-file.schema.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(stack_file_schema())), "run `make schema`"


def test_the_schema_accepts_the_development_stack_and_refuses_a_misspelt_key() -> None:
    schema = stack_file_schema()
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    document["config"]["slurmstack:worker_nodes"]["default"]["sizes"] = 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_the_example_key_is_a_real_one() -> None:
    assert len(base64.b64decode(stacks.ALICE_KEY.split()[1])) == 51
