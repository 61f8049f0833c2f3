"""What a slip of the writer's hand is answered with: one line, in words of YAML, with what to write."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, load_stack_file
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

POOL = {"size": 2, "resources": {"cpus": 2, "memory": "2Gi"}}
NO_REGISTRY = "is not how an image's name begins: a host, with :PORT and /PATH if need be, without https://"
A_SIZE = ": write a number, or {min: 1, max: 5}"
NO_SETTING = "is no value of slurm.conf: write text, a number, true, false or a list of these"


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("slurm.settings.DefMemPerCPU", None, ": is empty: write what belongs there, or leave the key out"),
        ("slurm.settings.DefMemPerCPU", {"a": 1}, f": {NO_SETTING}"),
        ("slurm.settings.PrologFlags", ["Alloc", None], f': ["Alloc", null] {NO_SETTING}'),
        ("partitions.main.settings.MaxNodes", None, ": is empty: write what belongs there, or leave the key out"),
        (
            "users",
            ["alice", "bob"],
            ': ["alice", "bob"] is a list, and a map belongs here: write `alice: ...` in place of `- alice`',
        ),
        (
            "worker_nodes.default.resources",
            [{"cpus": 2}],
            ': [{"cpus": 2}] is a list, and a map belongs here: write `name: ...` in place of `- name`',
        ),
        ("partitions.main.pools", ["default", "default"], ': ["default", "default"] has \'default\' more than once'),
        ("images.registry", "https://registry.example", f": 'https://registry.example' {NO_REGISTRY}"),
        ("login", 3, ": 3 is not a map of keys to values"),
        ("login.size", "2", ": '2' is not a whole number: write it without quotes"),
        ("login.size", "08", ": '08' is not a whole number: write it without the leading 0"),
        ("licenses", {"a": "08"}, ".a: '08' is not a whole number: write it without the leading 0"),
        ("login.size", date(2026, 1, 1), ": 2026-01-01 is not a whole number"),
        ("login.size", True, ": true is not a whole number"),
        ("login", True, ": true is not a map of keys to values"),
        ("partitions.main.pools", True, ": true is not a list; write a list: [true]"),
        ("partitions.main.pools", [], ": [] has 0 entries; at least 1"),
        ("partitions.main.max_time", date(2026, 1, 1), ": 2026-01-01 is not text: write it in quotes"),
        ("login.size", "9" * 5000 + "s", f": '{'9' * 199}... is not a whole number{A_SIZE}"),
        ("login.memory", "9" * 5000 + "Mi", f": '{'9' * 199}... is more than 100Pi, which is surely a slip"),
        ("login", {"[key]": 1}, ".[key]: '[key]' is not a known key"),
        ("login.cpu", "2 cores", ": '2 cores' is not a number of CPUs: write it as '2', '0.5' or 500m"),
        ("login.cpu", "9" * 23, f": '{'9' * 23}' is more than 100,000 CPUs, which is surely a slip"),
        ("login.cpu", "100000001m", ": '100000001m' is more than 100,000 CPUs, which is surely a slip"),
        ("login.size", "two", f": 'two' is not a whole number{A_SIZE}"),
        ("login.size", "1-5", f": '1-5' is not a whole number{A_SIZE}"),
        (
            "worker_nodes.default.size",
            "0 .. 64",
            ": '0 .. 64' is not a whole number: write a number, or {min: 0, max: 64}",
        ),
        ("login.size", 1.5, ": 1.5 is not a whole number"),
        ("login.size", "30s", f": '30s' is not a whole number{A_SIZE}"),
        (
            "health.interval",
            "30s",
            ": '30s' is not a whole number: write seconds as a number without a unit, here 30",
        ),
        (
            "worker_nodes.default.drain_timeout",
            "7d",
            ": '7d' is not a whole number: write seconds as a number without a unit, here 604800",
        ),
        (
            "worker_nodes.default.drain_timeout",
            "1:00:00",
            ": '1:00:00' is not a whole number: write seconds as a number without a unit, for example 3600",
        ),
        (
            "login.user_limits.cpu_minutes",
            "2 hours",
            ": '2 hours' is not a whole number: write minutes as a number without a unit, here 120",
        ),
        (
            "users.alice",
            {"uid": 10001, "sudo": "yes"},
            ".sudo: 'yes' is neither true nor false: write one of these, without quotes",
        ),
        ("partitions.main.max_time", 60, ": 60 is not text: write it in quotes"),
        (
            "worker_nodes",
            POOL,
            (
                ": has 'size' and 'resources' directly below it, where a name belongs: write a name of your own and "
                "these below it, `NAME: {size: ...}`"
            ),
        ),
        (
            "users",
            {"uid": 10001},
            (
                ": has 'uid' directly below it, where a name belongs: write a name of your own and these below it, "
                "`NAME: {uid: ...}`"
            ),
        ),
        (
            "accounts",
            {"ml": {"grp_tres": {"cpus": 3}}},
            (
                ".ml.grp_tres.cpus: 'cpus' is not a trackable resource: cpu, mem (MiB), node, billing, gres/NAME, "
                "license/NAME; did you mean 'cpu'?"
            ),
        ),
        (
            "users.alice",
            {"uid": 10001, "accounts": ["ml"]},
            ".accounts.ml: 'ml' is not an account; declare it in slurmstack:accounts",
        ),
        (
            "cloud",
            {"kubeconfig": "/nope/x"},
            (
                ".kubeconfig: is of no use without a context; set cloud.context too (`kubectl config get-contexts` "
                "lists them)"
            ),
        ),
    ],
)
def test_a_slip_is_told_once_with_what_to_write(path: str, value: Any, complaint: str) -> None:
    (found,) = complaints(with_change(stacks.dev(), path, value))
    assert found.partition(" (valid: ")[0] == path + complaint


def test_a_name_may_be_that_of_a_key() -> None:
    sections = with_change(stacks.dev(), "worker_nodes", {"resources": {**POOL, "size": -1}})
    sections = with_change(sections, "partitions", {"qos": {"pools": ["resources"]}})
    (complaint,) = complaints(sections)
    assert complaint.startswith("worker_nodes.resources.size: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("config:\n  slurmstack:login:\n    size: 1\n   node_port: 2\n", "in line 4: "),
        ("config:\n  slurmstack:login: {}\n    size: 1\n", "in line 3: "),
        ("config:\n\tslurmstack:login: {}\n", "in line 2: "),
    ],
)
def test_a_wrong_indent_is_told_with_file_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    stack = tmp_path / "Pulumi.indent.yaml"
    stack.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_stack_file(stack)
    assert str(caught.value).startswith(f"{stack}: is not valid YAML {complaint}")
    assert str(caught.value).endswith("; check the indent of this line and of the one above")
