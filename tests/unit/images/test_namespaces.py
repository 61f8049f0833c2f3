"""Namespaces for containers in jobs: who makes them, in which order, and what becomes of whoever does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.worker.namespaces import Owner, why_not


def test_as_many_groups_have_a_name_as_the_kernel_takes() -> None:
    few, many = (
        Owner(uid=1, gid=2, groups=tuple(range(1000))),
        Owner(uid=1, gid=2, groups=tuple(range(10**9, 10**9 + 999))),
    )
    assert few.gid_map().count("\n") == 340
    assert few.gid_map().startswith("2 2 1\n0 0 1\n1 1 1\n3 3 1\n")
    assert len(many.gid_map()) < 4096
    assert many.gid_map().endswith(" 1\n")


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns = 1, it takes 0",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", ""),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone = 0, it takes 1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces = 0, it takes more"),
        ("user/max_user_namespaces", "100", ""),
    ],
)
def test_a_setting_of_the_machine_that_is_in_the_way_is_named(
    tmp_path: Path, setting: str, value: str, told: str
) -> None:
    assert why_not(tmp_path) == ""
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    assert why_not(tmp_path) == (f"; the machine has {told}" if told else "")
