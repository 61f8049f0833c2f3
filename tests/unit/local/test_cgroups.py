from __future__ import annotations

import pytest

from local import cgroups


def test_down_in_another_directory_cannot_reach_this_clusters_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/one")
    first = cgroups.root_name()
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/two")
    assert cgroups.root_name() != first


def test_the_default_directory_has_the_plain_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMSTACK_LOCAL_DIR", raising=False)
    assert cgroups.node_cgroup("node-0") == "/slurmstack/node-0"
