"""Accounting: what needs it, its database, and what a stack file cannot say of slurmdbd."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests.unit.config.messages import policy_complaint, policy_complaints, with_sections

DIGEST = f"sha256:{'a' * 64}"
EXTERNAL: dict[str, Any] = {"host": "db.example", "password": {"name": "db", "key": "password"}}
TEAMS: dict[str, Any] = {"accounts": {"ml": {}}, "users": {"alice": {"uid": 10001, "accounts": ["ml"]}}}
OFF = {"enabled": False}
MAIN: dict[str, Any] = {"pools": ["cpu"]}


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"accounts": {"ml": {}}}, "accounts"),
        ({"qos": {"high": {}}}, "qos"),
        ({"priority": {"max_age": "1-0"}}, "priority"),
        (
            {
                "reservations": {
                    "r": {"start": "2999-01-01T00:00", "duration": "1", "node_count": 1, "users": ["alice"]}
                }
            },
            "reservations",
        ),
        ({"accounting": OFF | {"prune": True}}, "accounting.prune"),
        ({"accounting": OFF | {"enforce": ["nojobs"]}}, "accounting.enforce"),
        ({"users": {"alice": {"uid": 10001, "admin_level": "operator"}}}, "users.alice.admin_level"),
        ({"partitions": {"main": {**MAIN, "qos": "normal"}}}, "partitions.main.qos"),
        ({"partitions": {"main": {**MAIN, "allow_accounts": ["root"]}}}, "partitions.main.allow_accounts"),
    ],
)
def test_policy_needs_accounting(sections: dict[str, Any], where: str) -> None:
    complaint = policy_complaint(**{"accounting": OFF, **sections})
    assert complaint == (f"{where}: needs accounting, and accounting.enabled is false; set it to true, or remove this")


def test_preemption_by_qos_needs_accounting() -> None:
    found = policy_complaints(accounting=OFF, preemption={"type": "qos"}, qos={"a": {"preempt": ["b"]}, "b": {}})
    assert any(line.startswith("preemption.type: qos needs accounting") for line in found)


def test_a_cluster_without_accounting_is_accepted() -> None:
    load_config(with_sections(accounting=OFF))


@pytest.mark.parametrize("enforce", [["associations"], ["limits"], ["safe"], ["qos", "nosteps"]])
def test_enforcement_without_accounts_would_let_nobody_run(enforce: list[str]) -> None:
    complaint = policy_complaint(accounting={"enforce": enforce})
    assert complaint.startswith("accounting.enforce: has ")
    assert "no accounts are declared" in complaint
    load_config(with_sections(accounting={"enforce": enforce}, **TEAMS))


def test_access_by_account_needs_enforcement() -> None:
    partitions = {"main": {**MAIN, "allow_accounts": ["ml"]}}
    complaint = policy_complaint(accounting={"enforce": []}, partitions=partitions, **TEAMS)
    assert complaint.startswith(
        "partitions.main.allow_accounts: has no effect, as accounting.enforce lacks associations"
    )
    load_config(with_sections(partitions=partitions, **TEAMS))


def test_an_unknown_kind_of_enforcement_is_named() -> None:
    assert "did you mean 'limits'?" in policy_complaint(accounting={"enforce": ["limit"]})


@pytest.mark.parametrize(("field", "value"), [("storage", "20Gi"), ("storage_class", "fast"), ("memory", "1Gi")])
def test_an_external_database_has_no_volume_of_ours(field: str, value: str) -> None:
    complaint = policy_complaint(accounting={"database": {"external": EXTERNAL, field: value}})
    assert complaint.startswith(f"accounting.database.{field}: is for a MariaDB in the cluster, and external names")


@pytest.mark.parametrize("user", ["a b", "x\nStoragePass=y", "", "x" * 81])
def test_a_database_user_cannot_bring_another_line_in(user: str) -> None:
    complaint = policy_complaint(accounting={"database": {"external": {**EXTERNAL, "user": user}}})
    assert complaint.startswith("accounting.database.external.user: ")


@pytest.mark.parametrize("host", ["db.example", "10.0.0.30", "fd12::1", "DB-1"])
def test_a_database_is_at_a_host(host: str) -> None:
    load_config(with_sections(accounting={"database": {"external": {**EXTERNAL, "host": host}}}))


@pytest.mark.parametrize("host", ["a..b", "10.0.0.300", "0x7f000001", "fe80::1%\nStoragePass=y", "db.example:3306", ""])
def test_a_database_is_at_no_host_that_cannot_be(host: str) -> None:
    complaint = policy_complaint(accounting={"database": {"external": {**EXTERNAL, "host": host}}})
    assert complaint.startswith("accounting.database.external.host: ")
    assert "has the host" in complaint


@pytest.mark.parametrize("age", ["90", "0days", "1 month", "70000hours", "3years"])
def test_an_age_is_one_that_slurmdbd_knows(age: str) -> None:
    assert policy_complaint(accounting={"retention": {"jobs": age}}).startswith("accounting.retention.jobs: ")


def test_a_password_in_the_stack_file_is_refused() -> None:
    complaint = policy_complaint(accounting={"settings": {"StoragePass": "secret"}})
    assert "a password never belongs into a stack file" in complaint
    assert "'secret'" not in complaint


@pytest.mark.parametrize(
    ("key", "field"),
    [("StorageHost", "accounting.database.external.host"), ("purgejobafter", "accounting.retention.jobs")],
)
def test_slurmdbd_s_keys_that_fields_write_are_refused(key: str, field: str) -> None:
    assert field in policy_complaint(accounting={"settings": {key: "x"}})
