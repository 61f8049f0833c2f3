"""Cgroups of the local cluster, in which all of its processes are."""

from __future__ import annotations

import pytest

from local import cgroups


def test_down_in_another_directory_cannot_reach_this_clusters_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/one")
    first = cgroups.root_name()
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/two")
    assert cgroups.root_name() != first
