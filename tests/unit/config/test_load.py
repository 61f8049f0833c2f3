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

NO_SIZE = "is not a size: write a number with a unit, for example 512Mi, 20Gi or 1Ti"
EMPTY = "is empty: write what belongs there, or leave the key out"


def test_the_committed_development_stack_is_valid() -> None:
    config = load_stack_file(ROOT / "Pulumi.dev.yaml")
    assert config.worker_nodes["default"].size == 2
    assert config.cloud.is_local


def test_the_shape_that_users_know_is_accepted_as_written() -> None:
    config = load_config(stacks.existing())
    assert config.worker_nodes["cpu"].features == ("avx2",)
    assert config.slurm.settings == {"DefMemPerCPU": 512}


def test_a_misspelt_section_names_the_nearest_one() -> None:
    sections = stacks.dev()
    sections["worker_node"] = sections.pop("worker_nodes")
    sections["partitions"] = {"main": {"pools": ["default"]}}
    (unknown,) = complaints(sections)
    assert unknown.startswith("slurmstack:worker_node: ")
    assert "did you mean 'worker_nodes'?" in unknown


def test_a_misspelt_section_of_a_cloud_is_the_only_complaint_about_machines_that_it_would_make() -> None:
    sections = stacks.nebius_minimum()
    sections["clouds"] = sections.pop("cloud")
    (unknown,) = complaints(sections)
    assert "did you mean 'cloud'?" in unknown


def test_a_name_that_is_like_no_section_fills_in_for_none() -> None:
    sections = stacks.dev()
    sections["xyzzy"] = sections.pop("worker_nodes")
    assert "worker_nodes: is required but not set" in complaints(sections)


def test_a_misspelt_key_names_the_nearest_one_and_its_place() -> None:
    sections = with_change(stacks.dev(), "worker_nodes.default.sizes", 3)
    (complaint,) = complaints(sections)
    assert complaint.startswith("worker_nodes.default.sizes: ")
    assert "did you mean 'size'?" in complaint


def test_a_misspelt_key_deep_inside_is_found_too() -> None:
    (complaint,) = complaints(with_change(stacks.dev(), "worker_nodes.default.resources.gpu", 8))
    assert "worker_nodes.default.resources.gpu: 'gpu' is not a known key" in complaint
    assert "did you mean 'gpus'?" in complaint


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


@pytest.mark.parametrize("size", [-1, 1.5, "2", True, None, 10**9, [2]])
def test_a_pool_size_is_a_whole_number_within_reason(size: Any) -> None:
    (complaint,) = complaints(with_change(stacks.dev(), "worker_nodes.default.size", size))
    assert complaint.startswith("worker_nodes.default.size: ")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("health", {"disabled": "gpu-memory"}, ".disabled: 'gpu-memory' is not a list; write a list: [gpu-memory]"),
        ("health", {"disabled": 3}, ".disabled: 3 is not a list; write a list: [3]"),
        ("health", {"disabled": {}}, ".disabled: {} is not a list; write a list"),
        (
            "health",
            {"max_drained": 0.1},
            ".max_drained: 0.1 is neither a number of nodes nor a part of them such as 10%",
        ),
        (
            "health",
            {"max_drained": True},
            ".max_drained: true is neither a number of nodes nor a part of them such as 10%",
        ),
        ("worker_nodes.default.resources.memory", 2, f": 2 {NO_SIZE}"),
        ("worker_nodes.default.resources.memory", "2", f": '2' {NO_SIZE}"),
        ("health", None, f": {EMPTY}"),
        ("health", {"disabled": None}, f".disabled: {EMPTY}"),
        ("health", {"max_drained": None}, f".max_drained: {EMPTY}"),
        ("worker_nodes.default.resources.memory", None, f": {EMPTY}"),
        ("login.size", None, f": {EMPTY}"),
        ("login", {"siz": None}, ".siz: 'siz' is not a known key"),
    ],
)
def test_a_slip_is_told_once_in_a_stack_file_s_own_words(path: str, value: Any, complaint: str) -> None:
    (found,) = complaints(with_change(stacks.dev(), path, value))
    assert found.startswith(path + complaint)


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


def test_a_pool_must_not_have_the_name_of_another_pool_s_node() -> None:
    sections = stacks.with_pools(1)
    sections["worker_nodes"] = {"gpu": sections["worker_nodes"]["pool0"], "gpu-1": sections["worker_nodes"]["pool0"]}
    (complaint,) = complaints(sections)
    assert complaint.startswith("worker_nodes.gpu-1: is also the name of a node of the pool 'gpu'")


def test_a_feature_must_not_have_the_name_of_another_pool() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.features", ["gpu", "cpu"])
    (complaint,) = complaints(sections)
    assert complaint.startswith("worker_nodes.gpu.features: 'cpu' is the name of another pool")


def test_a_partition_of_an_unknown_pool_names_the_nearest_one() -> None:
    (complaint,) = complaints(with_change(stacks.dev(), "partitions.main.pools", ["defalt"]))
    assert "partitions.main.pools: 'defalt' is not a pool of worker_nodes" in complaint
    assert "did you mean 'default'?" in complaint


def test_only_one_partition_is_the_default() -> None:
    sections = with_change(stacks.dev(), "partitions.second", {"pools": ["default"], "default": True})
    assert complaints(sections) == ["partitions: main and second are all marked default; only one partition can be"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("ssh-ed25519 AAAA alice", "is not an SSH public key"),
        ("ssh-ed25519", "is not an SSH public key"),
        ("hello", "is not an SSH public key"),
        (stacks.ALICE_KEY.replace("ssh-ed25519 ", "ssh-rsa "), "no complete ssh-rsa key"),
        (stacks.ALICE_KEY[:60], "was the line cut?"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "PRIVATE key"),
        (stacks.ALICE_KEY + "\n" + stacks.ALICE_KEY, "one line"),
    ],
)
def test_an_ssh_key_that_is_none_is_refused_with_the_reason(key: str, reason: str) -> None:
    (complaint,) = complaints(with_change(stacks.dev(), "users.alice", {"uid": 10001, "ssh_authorized_keys": [key]}))
    assert reason in complaint


@given(st.integers(0, len(stacks.ALICE_KEY.split()[1]) - 1))
def test_a_cut_key_is_never_taken_for_a_whole_one(length: int) -> None:
    key = f"ssh-ed25519 {stacks.ALICE_KEY.split()[1][:length]}"
    assert complaints(with_change(stacks.dev(), "users.alice", {"uid": 10001, "ssh_authorized_keys": [key]}))


@pytest.mark.parametrize("value", ["1-00:00:00", "30", "1:30:00", "UNLIMITED", "infinite", "2-12", "90:00"])
def test_slurm_s_time_notations_are_accepted(value: str) -> None:
    sections = with_change(stacks.dev(), "partitions.main.max_time", value)
    assert load_config(sections).partitions["main"].max_time == value


@pytest.mark.parametrize("value", ["1 day", "1d", "", "-5", "1:2:3:4", 60])
def test_other_times_are_refused(value: Any) -> None:
    assert complaints(with_change(stacks.dev(), "partitions.main.max_time", value))


def test_an_unquoted_slurm_version_is_understood() -> None:
    assert load_config(with_change(stacks.dev(), "slurm.version", 26.05)).slurm.version == "26.05"


@pytest.mark.parametrize(
    "key", ["NodeName", "partitionname", "Include", "Def Mem", "a=b", "SlurmctldPort", "statesavelocation"]
)
def test_lines_that_other_sections_write_are_no_settings(key: str) -> None:
    (complaint,) = complaints(with_change(stacks.dev(), "slurm.settings", {key: "x"}))
    assert complaint.startswith("slurm.settings: ")


@pytest.mark.parametrize("value", ["a\nPartitionName=evil", "a # b", "a\rb"])
def test_a_setting_cannot_smuggle_in_another_line(value: str) -> None:
    assert "would end the line" in complaints(with_change(stacks.dev(), "slurm.settings.Epilog", value))[0]


def test_a_stack_file_that_is_missing_or_no_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_stack_file(tmp_path / "Pulumi.none.yaml")
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_stack_file(broken)
    broken.write_text(f"config: {{size: {'9' * 5000}}}", encoding="utf-8")
    with pytest.raises(ConfigError, match="has a number of 5000 characters in line 1; 40 at most"):
        load_stack_file(broken)
    broken.write_text(f"config: {'[' * 3000}", encoding="utf-8")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_stack_file(broken)
    broken.write_text("config: {slurmstack:worker_nodes: &pools {a: *pools}}", encoding="utf-8")
    with pytest.raises(ConfigError, match="would never end"):
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
