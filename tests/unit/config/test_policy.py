"""Accounts, QOS and who may use them: what is found without a cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import load_config
from config.rules.circles import circles
from tests.unit.config.messages import policy_complaint, policy_complaints, with_sections

TEAMS: dict[str, Any] = {
    "science": {"fairshare": 70, "qos": ["normal", "high"], "default_qos": "normal"},
    "physics": {"parent": "science", "grp_tres": {"cpu": 64, "gres/gpu": 8}},
    "industry": {"fairshare": 30, "description": "paying guests"},
}
QOS: dict[str, Any] = {"high": {"priority": 100}, "low": {"max_wall": "1-0"}}
ALICE: dict[str, Any] = {"uid": 10001, "accounts": {"physics": {"fairshare": 2, "default_qos": "high"}, "industry": {}}}


def test_a_tree_of_teams_is_accepted() -> None:
    config = load_config(
        with_sections(accounts=TEAMS, qos=QOS, users={"alice": ALICE, "bob": {"uid": 10002, "accounts": ["physics"]}})
    )
    assert config.accounts["physics"].parent == "science"
    assert list(config.users["alice"].accounts) == ["physics", "industry"]
    assert config.users["bob"].accounts["physics"].fairshare == 1


@pytest.mark.parametrize(
    ("parents", "circle"), [({"a": "a"}, "a -> a"), ({"a": "c", "b": "a", "c": "b", "d": "a"}, "a -> c -> b -> a")]
)
def test_a_circle_of_parents_is_printed_once(parents: dict[str, str], circle: str) -> None:
    accounts = {name: {"parent": parent} for name, parent in parents.items()}
    assert f"accounts.a.parent: is a circle of parents: {circle};" in policy_complaint(accounts=accounts)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3)))
def test_circles_are_found_where_there_are_some_and_nowhere_else(graph: dict[str, list[str]]) -> None:
    found = circles(graph)
    for circle in found:
        assert circle[0] == circle[-1]
        assert all(after in graph[before] for before, after in pairwise(circle))
    reach = {name: set(following) for name, following in graph.items()}
    for _ in graph:
        reach = {name: there.union(*(reach.get(one, set()) for one in there)) for name, there in reach.items()}
    assert bool(found) == any(name in there for name, there in reach.items())


def test_an_unknown_parent_names_the_nearest_account() -> None:
    complaint = policy_complaint(accounts={"science": {}, "physics": {"parent": "sience"}})
    assert complaint.startswith("accounts.physics.parent: 'sience' is not an account")
    assert "did you mean 'science'?" in complaint


def test_a_wrong_account_is_known_to_others_all_the_same() -> None:
    complaint = policy_complaint(accounts={"science": {"fairshare": -1}, "physics": {"parent": "science"}})
    assert complaint.startswith("accounts.science.fairshare")


@pytest.mark.parametrize("name", ["root", "Physics", "a b", "", "a" * 64, "-a"])
def test_an_account_s_name_is_one_that_slurm_keeps(name: str) -> None:
    assert any(f"accounts.{name}: " in line for line in policy_complaints(accounts={name: {}}))


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"accounts": {"a": {"qos": ["hihg"]}}}, "accounts.a.qos"),
        ({"accounts": {"a": {"default_qos": "hihg"}}}, "accounts.a.default_qos"),
        ({"accounts": {"a": {}}, "users": {"eve": {"uid": 10009, "accounts": {"a": {"qos": ["hihg"]}}}}},
         "users.eve.accounts.a.qos"),
        ({"partitions": {"main": {"pools": ["cpu"], "qos": "hihg"}}}, "partitions.main.qos"),
        ({"partitions": {"main": {"pools": ["cpu"], "allow_qos": ["hihg"]}}}, "partitions.main.allow_qos"),
        ({"partitions": {"main": {"pools": ["cpu"], "deny_qos": ["hihg"]}}}, "partitions.main.deny_qos"),
        ({"preemption": {"type": "qos"}, "qos": {"high": {"preempt": ["hihg"]}}}, "qos.high.preempt"),
    ],
)  # fmt: skip
def test_an_unknown_qos_is_named_wherever_it_stands(sections: dict[str, Any], where: str) -> None:
    complaint = policy_complaint(**{"qos": {"high": {}}, **sections})
    assert complaint.startswith(f"{where}: 'hihg' is not a QOS of slurmstack:qos (valid: high, normal)")
    assert "did you mean 'high'?" in complaint


def test_the_qos_normal_is_always_there() -> None:
    load_config(with_sections(partitions={"main": {"pools": ["cpu"], "allow_qos": ["normal"]}}))


def test_a_default_qos_must_be_one_that_may_be_used() -> None:
    accounts = {"a": {"qos": ["normal"], "default_qos": "high"}}
    complaint = policy_complaint(accounts=accounts, qos=QOS)
    assert complaint.startswith("accounts.a.default_qos: 'high' is not among the QOS that may be used here (normal)")


def test_accounts_without_qos_have_those_of_the_account_above() -> None:
    accounts = {"top": {"qos": ["high"]}, "a": {"parent": "top", "default_qos": "high"}}
    load_config(with_sections(accounts=accounts, qos=QOS))
    wrong = {**accounts, "a": {"parent": "top", "default_qos": "normal"}}
    assert "(high)" in policy_complaint(accounts=wrong, qos=QOS)


def test_the_topmost_accounts_may_use_normal_only() -> None:
    assert "(normal)" in policy_complaint(accounts={"a": {"default_qos": "high"}}, qos=QOS)


def test_a_user_s_qos_must_have_the_default_of_the_account() -> None:
    users = {"alice": {"uid": 10001, "accounts": {"science": {"qos": ["high"]}}}}
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, users=users)
    assert complaint.startswith("users.alice.accounts.science.qos: leaves out 'normal', the default_qos")


def test_rights_in_slurm_need_an_account() -> None:
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, users={"bob": {"uid": 10002, "admin_level": "operator"}})
    assert complaint.startswith("users.bob.admin_level: needs an account")
    load_config(with_sections(users={"bob": {"uid": 10002, "admin_level": "operator"}}))


def test_an_empty_list_of_qos_would_let_no_job_run() -> None:
    assert "allows no QOS" in policy_complaint(accounts={"a": {"qos": []}})


def test_a_user_in_an_unknown_account_is_told_the_nearest() -> None:
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, users={"bob": {"uid": 10002, "accounts": ["phisics"]}})
    assert complaint.startswith("users.bob.accounts.phisics: 'phisics' is not an account")
    assert "did you mean 'physics'?" in complaint


def test_a_default_account_is_one_of_the_user_s() -> None:
    user = {"uid": 10002, "accounts": ["physics"], "default_account": "industry"}
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, users={"bob": user})
    assert complaint.startswith("users.bob.default_account: 'industry' is not among the user's accounts")
    user = {"uid": 10002, "default_account": "industry"}
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, users={"bob": user})
    assert "add it to users.bob.accounts" in complaint


@pytest.mark.parametrize("accounts", [[{"ml": {}}], [1], "ml", 3])
def test_a_user_s_accounts_are_names_or_a_map(accounts: Any) -> None:
    found = policy_complaints(accounts=TEAMS, qos=QOS, users={"bob": {"uid": 10002, "accounts": accounts}})
    assert all(line.startswith("users.bob.accounts") for line in found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fairshare", -1),
        ("fairshare", 2_000_000_001),
        ("fairshare", "parents"),
        ("fairshare", 1.5),
        ("grp_jobs", -1),
        ("max_jobs", "many"),
        ("max_wall", "1 day"),
        ("grp_tres", {"cpu": -1}),
        ("grp_tres", {"cpu": 10**19}),
        ("priority", 2**32),
    ],
)
def test_shares_and_limits_out_of_range_are_named(field: str, value: Any) -> None:
    found = policy_complaints(accounts={"a": {field: value}})
    assert found
    assert all(line.startswith(f"accounts.a.{field}") for line in found)


def test_a_budget_may_be_larger_than_32_bits() -> None:
    year = 10_000 * 365 * 24 * 60
    config = load_config(with_sections(accounts={"a": {"grp_tres_mins": {"cpu": year}}}))
    assert config.accounts["a"].grp_tres_mins == {"cpu": year}


def test_an_unknown_resource_is_no_limit() -> None:
    complaint = policy_complaint(accounts={"a": {"grp_tres": {"gpu": 1}}})
    assert complaint.startswith("accounts.a.grp_tres.gpu: 'gpu' is not a trackable resource")
    assert complaint.endswith("did you mean 'gres/gpu'?")


def test_limits_name_only_what_the_cluster_has() -> None:
    pool = {"cpu": {"size": 1, "resources": {"cpus": 2, "memory": "4Gi"}}}
    limits = {"grp_tres": {"gres/gpu": 4, "gres/fpga": 1, "license/ansis": 1}}
    found = policy_complaints(
        worker_nodes=pool, partitions={"main": {"pools": ["cpu"]}}, accounts={"a": limits}, licenses={"ansys": 3}
    )
    where = "accounts.a.grp_tres"
    assert found == [
        f"{where}: names 'gres/gpu', and no pool has GPUs; remove it",
        f"{where}: names 'gres/fpga', and nodes have no generic resource but gpu and shard; remove it",
        f"{where}: names 'license/ansis', and slurmstack:licenses has no 'ansis'; add it there, or remove this",
    ]


def test_a_qos_that_no_job_can_fulfil_is_named() -> None:
    qos = {"big": {"min_tres_per_job": {"cpu": 100}, "max_tres_per_user": {"cpu": 50}}}
    assert "asks for cpu=100 at least, and max_tres_per_user allows 50" in policy_complaint(qos=qos)


def test_a_threshold_without_its_flag_has_no_effect() -> None:
    assert "EnforceUsageThreshold" in policy_complaint(qos={"fair": {"usage_threshold": 0.1}})
    load_config(with_sections(qos={"fair": {"usage_threshold": 0.1, "flags": ["EnforceUsageThreshold"]}}))


@pytest.mark.parametrize("what", ["accounts", "qos"])
def test_allowed_and_denied_together_are_refused_as_slurm_ignores_one(what: str) -> None:
    known = {"accounts": "science", "qos": "high"}[what]
    partition = {"pools": ["cpu"], f"allow_{what}": [known], f"deny_{what}": [known]}
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, partitions={"main": partition})
    assert complaint.startswith(f"partitions.main.deny_{what}: has no effect beside allow_{what}")


def test_a_partition_of_unknown_accounts_names_the_nearest() -> None:
    partition = {"pools": ["cpu"], "allow_accounts": ["sciense"], "deny_accounts": []}
    complaint = policy_complaint(accounts=TEAMS, qos=QOS, partitions={"main": partition})
    assert complaint.startswith("partitions.main.allow_accounts: 'sciense'")
    assert "did you mean 'science'?" in complaint
