"""Seeds of containerd's directory, with one that only writes files; the real one: tests/e2e/test_make_up.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local import imagestore, nodes, paths, processes

BLOB = "io.containerd.content.v1.content/blobs/sha256/layer"
DATABASE = "io.containerd.metadata.v1.bolt/meta.db"
NAMES = ["node-0", "node-1"]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "slurmstack"))
    program = tmp_path / "containerd"
    program.write_text("1.6")
    return SimpleNamespace(tools=SimpleNamespace(path=lambda name: str(tmp_path / name)))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    found = tmp_path / "images.tar"
    found.write_text("layer")
    return found


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which nodes imported, in order; each containerd was asked to end by itself before its directory was kept."""
    taken: list[str] = []

    def load_on(_setup: Any, node: str, archive: Path) -> bool:
        marker = paths.node(node) / "images" / archive.name
        if marker.exists():
            return False
        for path in (BLOB, DATABASE):
            target = paths.node(node) / "containerd" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(archive.read_text())
        marker.parent.mkdir(exist_ok=True)
        marker.touch()
        taken.append(node)
        return True

    monkeypatch.setattr(imagestore, "load_on", load_on)
    monkeypatch.setattr(nodes, "ensure_containerd", lambda _setup, _index: None)

    def stop(component: str, grace_s: float) -> bool:
        taken.append(f"{component} ended {grace_s}")
        return True

    monkeypatch.setattr(processes, "stop", stop)
    return taken


def fresh(*names: str) -> None:
    for name in names:
        (paths.node(name) / "containerd").mkdir(parents=True)


def inode(node: str, path: str) -> int:
    return (paths.node(node) / "containerd" / path).stat().st_ino


def test_the_first_node_imports_and_the_second_is_linked(setup: Any, archive: Path, imports: list[str]) -> None:
    fresh(*NAMES)
    imagestore.furnish(setup, NAMES, [archive])
    assert imports == ["node-0", "containerd-node-0 ended 30"]
    assert inode("node-0", BLOB) == inode("node-1", BLOB)
    kept = (imagestore.seed_of(setup, [archive]) / "containerd" / DATABASE).stat().st_ino
    assert len({inode("node-0", DATABASE), inode("node-1", DATABASE), kept}) == 3, "containerd writes into it"


def test_a_later_cluster_imports_nothing(setup: Any, archive: Path, imports: list[str]) -> None:
    fresh("node-0")
    imagestore.furnish(setup, ["node-0"], [archive])
    imports.clear()
    fresh("node-1", "node-2")
    imagestore.furnish(setup, ["node-1", "node-2"], [archive])
    assert imports == []


def test_a_node_that_has_run_imports_what_it_lacks(setup: Any, archive: Path, imports: list[str]) -> None:
    fresh(*NAMES)
    imagestore.furnish(setup, ["node-0"], [archive])
    (paths.node("node-1") / "containerd" / "of a container").touch()
    imagestore.furnish(setup, NAMES, [archive])
    assert imports[-1] == "node-1"


def test_what_a_killed_containerd_has_left_is_not_kept(
    setup: Any, archive: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "stop", lambda _component, grace_s: grace_s < 0)
    fresh(*NAMES)
    imagestore.furnish(setup, NAMES, [archive])
    assert imports == NAMES
    assert not imagestore.seed_of(setup, [archive]).exists()
