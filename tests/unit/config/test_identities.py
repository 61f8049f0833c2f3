"""Users and groups: numbers that only one may have, and names that must be known."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests.unit.config.messages import policy_complaint, policy_complaints, with_sections


def test_two_users_with_one_uid_are_named_once() -> None:
    complaint = policy_complaint(users={"alice": {"uid": 10001}, "bob": {"uid": 10001}, "eve": {"uid": 10003}})
    assert complaint == "users: alice and bob have the same uid 10001"


def test_a_gid_must_not_be_the_number_of_another_user_s_own_group() -> None:
    complaint = policy_complaint(users={"alice": {"uid": 10001}, "bob": {"uid": 10002, "gid": 10001}})
    assert complaint.startswith("users: alice and bob have the same gid 10001; for a common primary group declare it")


def test_a_declared_group_may_be_the_primary_group_of_several() -> None:
    users = {name: {"uid": uid, "gid": 5000} for name, uid in (("alice", 10001), ("bob", 10002))}
    config = load_config(with_sections(users=users, groups={"research": {"gid": 5000}}))
    assert config.users["bob"].gid == 5000


@pytest.mark.parametrize("shell", ["/../../bin/sh", "/bin/./sh", "/bin//sh", "/bin/sh/", "/", "bin/sh", "/bin/..", ""])
def test_a_shell_is_a_plain_path_inside_the_jail(shell: str) -> None:
    complaint = policy_complaint(users={"alice": {"uid": 10001, "shell": shell}})
    assert complaint.startswith(f"users.alice.shell: '{shell}' is not the path of a program: write it from '/' on")


@pytest.mark.parametrize("shell", ["/bin/zsh", "/home/alice/.local/bin/fish", "/opt/..x/a-b_1.2"])
def test_a_shell_may_be_anywhere_in_the_jail(shell: str) -> None:
    assert load_config(with_sections(users={"alice": {"uid": 10001, "shell": shell}})).users["alice"].shell == shell


def test_a_group_must_not_have_the_number_of_a_user_s_own_group() -> None:
    complaint = policy_complaint(users={"alice": {"uid": 10001}}, groups={"research": {"gid": 10001}})
    assert complaint.startswith("users.alice.uid: 10001 is also the gid of the group 'research'")


def test_two_groups_cannot_have_the_same_gid() -> None:
    groups = {"research": {"gid": 5000}, "teaching": {"gid": 5000}}
    assert policy_complaint(groups=groups) == "groups: research and teaching have the same gid 5000"


@pytest.mark.parametrize("uid", [0, 999, 60000, 65534, -1, "10001"])
def test_numbers_of_the_system_are_for_nobody(uid: Any) -> None:
    assert policy_complaint(users={"alice": {"uid": uid}}).startswith("users.alice.uid: ")
    assert policy_complaint(groups={"research": {"gid": uid}}).startswith("groups.research.gid: ")


@pytest.mark.parametrize("name", ["root", "slurm", "mysql", "www-data", "sssd"])
def test_users_of_the_system_cannot_be_declared(name: str) -> None:
    assert "is a user of the system" in policy_complaint(users={name: {"uid": 10001}})


def test_groups_of_the_system_cannot_be_declared() -> None:
    assert policy_complaint(groups={"sudo": {"gid": 5000}}).startswith("groups.sudo: is a group of the system")


@pytest.mark.parametrize("name", ["video", "operator", "users"])
def test_a_user_s_own_group_cannot_be_one_of_the_system(name: str) -> None:
    assert policy_complaint(users={name: {"uid": 10003}}).startswith(f"users.{name}: is a group of the system in the")
    users = {name: {"uid": 10003, "gid": 5000}}
    load_config(with_sections(users=users, groups={"research": {"gid": 5000}}))  # which needs no group of the name


def test_a_group_with_a_user_s_name_must_be_that_user_s() -> None:
    load_config(with_sections(users={"alice": {"uid": 10001}}, groups={"alice": {"gid": 10001}}))
    complaint = policy_complaint(users={"alice": {"uid": 10001}}, groups={"alice": {"gid": 5000}})
    assert complaint.startswith("groups.alice.gid: 5000 is not the gid 10001 of the user 'alice'")


def test_groups_of_the_system_and_its_packages_need_no_declaration() -> None:
    user = {"uid": 10001, "groups": ["video", "docker", "research"]}
    load_config(with_sections(users={"alice": user}, groups={"research": {"gid": 5000}}))


def test_a_group_that_nobody_declared_is_named_with_the_nearest() -> None:
    user = {"uid": 10001, "groups": ["resarch"]}
    complaint = policy_complaint(users={"alice": user}, groups={"research": {"gid": 5000}})
    assert complaint.startswith("users.alice.groups: 'resarch' is no declared group (did you mean 'research'?)")


def test_a_partition_s_groups_must_be_known_to_slurmctld() -> None:
    partition = {"pools": ["cpu"], "allow_groups": ["reserch", "alice"]}
    sections = {"partitions": {"main": partition}, "groups": {"research": {"gid": 5000}}}
    complaint = policy_complaint(**sections)
    assert complaint.startswith("partitions.main.allow_groups: 'reserch'")
    assert "did you mean 'research'?" in complaint
    load_config(with_sections(**sections, sssd={"secret": "sssd"}))


def test_all_of_it_is_told_at_once() -> None:
    found = policy_complaints(
        users={"alice": {"uid": 10001, "groups": ["x1"]}, "bob": {"uid": 10001}}, groups={"sudo": {"gid": 5000}}
    )
    assert len(found) == 3


def test_sssd_is_refused_with_a_version_whose_images_have_none() -> None:
    complaint = policy_complaint(sssd={"secret": "ldap"}, slurm={"version": "26.05"})
    assert complaint.startswith("sssd: is not there with Slurm 26.05: Debian's suite with that version has no SSSD")
    load_config(with_sections(sssd={"secret": "ldap"}, slurm={"version": "24.11"}))
