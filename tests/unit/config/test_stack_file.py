"""A stack file as text, and as the engine hands it over: YAML, keys of ours and of others, errors all at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config import ConfigError, Problem, load_config, load_stack_file
from config.load import read_sections
from config.schema import stack_file_schema
from tests import stacks
from tests.unit.config.messages import complaints

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """Where a stack file may be written."""
    return tmp_path / "Pulumi.test.yaml"


def refusal(stack: Path, text: str) -> str:
    """What a reader of this stack file is told, without the file's name."""
    stack.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_stack_file(stack)
    return str(caught.value).removeprefix(f"{stack}: ")


def test_the_committed_development_stack_is_valid_and_the_schema_knows_its_keys() -> None:
    config = load_stack_file(ROOT / "Pulumi.dev.yaml")
    assert (config.worker_nodes["default"].size, config.cloud.is_local) == (2, True)
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(document, stack_file_schema())
    document["config"]["slurmstack:worker_nodes"]["default"]["sizes"] = 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, stack_file_schema())


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((ROOT / "docs" / "stack-file.schema.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(stack_file_schema())), "run `make schema`"


def test_all_errors_are_listed_at_once_across_sections() -> None:
    sections = stacks.dev()
    sections["worker_nodes"] = {"default": {"size": -1, "resources": {"cpus": 0, "memory": "2"}}}
    sections["partitions"] = {"main": {"pools": ["defautl"]}}
    sections["users"] = {"alice": {"uid": 0, "ssh_authorized_keys": ["nonsense"]}}
    sections["login"] = {"size": "two"}
    assert {line.partition(": ")[0] for line in complaints(sections)} == {
        "worker_nodes.default.size", "worker_nodes.default.resources.cpus", "worker_nodes.default.resources.memory",
        "partitions.main.pools", "users.alice.uid", "users.alice.ssh_authorized_keys.0", "login.size",
    }  # fmt: skip


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("config: [", "is not valid YAML in line 1: "),
        (f"config: {'[' * 3000}", "is not valid YAML: maximum recursion depth"),
        ("hello: 1", "has no map 'config:'"),
        ("config:\n  slurmstack:login:\n    size: 1\n   node_port: 2\n", "is not valid YAML in line 4: "),
        ("config:\n  slurmstack:login: {}\n    size: 1\n", "is not valid YAML in line 3: "),
        ("config:\n\tslurmstack:login: {}\n", "is not valid YAML in line 2: "),
        ("config:\n  a:a: {}\n  slurmstack:login: {size: 1}\n  slurmstack:login: {size: 2}\n",
            "is not valid YAML: the key 'slurmstack:login' stands in line 3 and again in line 4"),
        ('config:\n  slurmstack:login:\n    size: 1\n    "size": 1\n',
            "is not valid YAML: the key 'size' stands in line 3 and again in line 4"),
        ("config: {a: 1,\n  b: [{c: 1, c: 2}]}\n",
            "is not valid YAML: the key 'c' stands in line 2 and again in line 2"),
        ("config:\n  slurmstack:login: &a {size: *a}\n",
            "is not valid YAML in line 2: found unconstructable recursive node"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_line(stack: Path, text: str, told: str) -> None:
    found = refusal(stack, text)
    assert found.startswith(told)
    assert ("check the indent of this line and of the one above" in found) == ("YAML in line" in told)


def test_a_stack_file_that_is_missing_or_no_text_is_named(tmp_path: Path, stack: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_stack_file(tmp_path / "Pulumi.none.yaml")
    stack.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="codec can't decode"):
        load_stack_file(stack)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        load_stack_file(tmp_path)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("010", "is not valid YAML: 010 in line 2, which Pulumi reads in base 8: write it without the leading 0"),
        ("08", "login.size: '08' is not a whole number: write one without quotes, unit and leading 0"),
        ("2026-13-01", "is not valid YAML: month must be in 1..12"),
        ("!mine 3", "is not valid YAML in line 2: could not determine a constructor for the tag '!mine'"),
        ("\x01", "is not valid YAML: unacceptable character #x0001: special characters are not allowed"),
    ],
)
def test_a_value_that_is_not_what_its_writer_sees_is_told_as_written(stack: Path, value: str, told: str) -> None:
    found = refusal(stack, f"config:\n  slurmstack:login: {{size: {value}}}\n")
    assert found.splitlines()[0].startswith(told)


def test_a_leading_zero_is_kept_in_quotes_and_in_text_and_anchors_may_be_merged(stack: Path) -> None:
    text = "config: {slurmstack:x: {a: '010', b: 010-x, c: 0.10, d: 0, e: 00:10, f: 0o10}}\n"
    stack.write_text(text, encoding="utf-8")
    assert read_sections(stack)["x"] == {"a": "010", "b": "010-x", "c": 0.1, "d": 0, "e": "00:10", "f": 8}
    text = "config:\n  a:a: &a {x: 1, y: 1}\n  a:b: &b {<<: *a, x: 2}\n  slurmstack:login: {<<: *b, y: 3}\n"
    stack.write_text(text, encoding="utf-8")
    assert read_sections(stack) == {"login": {"x": 2, "y": 3}}


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("user", "write `slurmstack:users:`"),
        ("slurmstack.users", "write `slurmstack:users:`"),
        ("slurm-stack:users", "write `slurmstack:users:`"),
        ("cluster:users", "write `slurmstack:users:`"),
        ("7", "and the name of a section, or the provider's name before it if it is for a provider"),
    ],
)
def test_a_key_that_would_be_overlooked_is_refused_with_what_to_write(stack: Path, key: str, advice: str) -> None:
    found = refusal(stack, f"config:\n  slurmstack:login: {{}}\n  {key}: {{storge: 10Gi}}\n")
    assert found.startswith(f"{key}: ")
    assert found.endswith(advice)


def test_a_section_at_the_margin_is_refused(stack: Path) -> None:
    margin = "slurmstack:users: {}\npartitions: {}\nencryptionsalt: v1\nenvironment: []\n"
    found = refusal(stack, f"config:\n  slurmstack:login: {{}}\n{margin}").splitlines()
    assert [line.partition(": ")[0] for line in found] == ["slurmstack:users", "partitions"]
    assert found[0].endswith("indent it below that: write `slurmstack:users:`")


@pytest.mark.parametrize(
    "key",
    ["kubernetes:cluster", "nebius:users", "pulumi:tags", "random:images", "aws:region", "localstack:endpoint",
     "openstack:cloud_name"],
)  # fmt: skip
def test_keys_of_others_are_left_alone(stack: Path, key: str) -> None:
    stack.write_text(json.dumps({"config": {"slurmstack:login": {"size": 2}, key: "x"}}), encoding="utf-8")
    assert read_sections(stack) == {"login": {"size": 2}}
