"""Rendered objects against the recorded graph, the files that they are written to, and what a recording leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands.stack import INDEX, read_file, write
from cli.errors import Failure
from cli.program.recording import manifests
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record

KINDS_WITH_DATA = {"Namespace", "PersistentVolume", "PersistentVolumeClaim"}

NOT_PRUNED = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""Annotations that only rendered objects have."""


def _documents(directory: Path) -> list[dict[str, Any]]:
    """The objects in a directory, in the order in which kubectl applies them."""
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.yaml"))]


def test_the_rendered_files_are_the_recorded_kubernetes_objects_but_for_what_keeps_data(tmp_path: Path) -> None:
    recording = record(stacks.existing(), stack="prod")
    write(manifests(recording), tmp_path)
    rendered = _documents(tmp_path)
    for document in rendered:
        annotations = document["metadata"].get("annotations", {})
        kept = {name: annotations.pop(name) for name in NOT_PRUNED if name in annotations}
        assert kept == (NOT_PRUNED if document["kind"] in KINDS_WITH_DATA else {}), document["kind"]
        if kept and not annotations:
            del document["metadata"]["annotations"]
    registered = [reveal(item.inputs) for item in recording if item.type.startswith("kubernetes:")]

    def order(document: dict[str, Any]) -> str:
        return f"{document['kind']} {document['metadata']['name']}"

    assert sorted(rendered, key=order) == sorted(registered, key=order)


def _needs(document: dict[str, Any]) -> set[tuple[str, str]]:
    """What must be there before the object, or before its pods can start."""
    needs = {("Namespace", document["metadata"]["namespace"])} if "namespace" in document["metadata"] else set()
    spec = document.get("spec", {}).get("template", {}).get("spec", {})
    if "serviceAccountName" in spec:
        needs.add(("ServiceAccount", spec["serviceAccountName"]))
    for volume in spec.get("volumes", []):
        for source, kind, name in (
            ("secret", "Secret", "secretName"),
            ("configMap", "ConfigMap", "name"),
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ):
            if source in volume and not volume[source].get("optional"):
                needs.add((kind, volume[source][name]))
    return needs


def test_in_the_order_of_the_file_names_each_object_comes_after_what_it_needs(tmp_path: Path) -> None:
    objects = manifests(record(stacks.existing_full(), stack="prod"))
    ours = {(manifest.kind, manifest.name) for manifest in objects}
    write(objects, tmp_path)
    there: set[tuple[str, str]] = set()
    for document in _documents(tmp_path):
        assert not (_needs(document) & ours) - there, document["metadata"]["name"]
        there.add((document["kind"], document["metadata"]["name"]))
    assert there == ours


def test_files_with_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    write(manifests(record(stacks.dev(), stack="dev")), tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.yaml")}
    assert {mode for name, mode in modes.items() if "-secret-" in name} == {0o600}
    assert {mode for name, mode in modes.items() if "-secret-" not in name} == {0o644}


def test_rendering_again_removes_what_left_the_stack_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    write(manifests(record(stacks.with_pools(2), stack="dev")), tmp_path)
    assert (tmp_path / "80-statefulset-pool1.yaml").exists()
    write(manifests(record(stacks.with_pools(1), stack="dev")), tmp_path)
    assert not (tmp_path / "80-statefulset-pool1.yaml").exists()
    assert (tmp_path / "80-statefulset-pool0.yaml").exists()
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_file_that_somebody_else_wrote_is_never_overwritten(tmp_path: Path) -> None:
    foreign = tmp_path / "00-namespace-slurm.yaml"
    foreign.write_text("mine", encoding="utf-8")
    with pytest.raises(Failure, match=r"did not write: 00-namespace-slurm\.yaml"):
        write(manifests(record(stacks.dev(), stack="dev")), tmp_path)
    assert foreign.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / INDEX).exists()


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_key_file_is_named_and_not_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match="cannot be read"):
        read_file(path)
    assert path.read_text(encoding="utf-8") == text
