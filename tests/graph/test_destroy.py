"""Everything that has pods is known to `destroy`, which waits until no pod is left; what goes with a namespace."""

from __future__ import annotations

from cli.commands.destroy import WORKLOADS
from tests import stacks
from tests.graph.objects import COMPONENT, everything, recorded, templates


def test_each_kind_that_has_pods_is_deleted() -> None:
    recording = recorded(everything())
    made = templates(recording)
    kinds = {item.type.rpartition(":")[2].lower() for item in recording if item.name in made}
    assert {"statefulset", "deployment", "job", "podtemplate"} <= kinds <= {*WORKLOADS}


def test_all_that_destroy_deletes_is_found_by_its_labels_and_no_claim_is_among_it() -> None:
    """What had no labels would stay in a namespace that is kept, and be in the way of the next cluster."""
    for sections in (stacks.dev(), everything()):
        inside = [item for item in recorded(sections) if (item.inputs.get("metadata") or {}).get("namespace")]
        assert inside
        for item in inside:
            labels = item.inputs["metadata"].get("labels") or {}
            assert labels.get("app.kubernetes.io/part-of") == "slurmstack", item.name
            assert labels.get("app.kubernetes.io/instance") == item.inputs["metadata"]["namespace"], item.name
            assert COMPONENT in labels, item.name


def test_with_the_engine_claims_go_with_the_namespace_and_static_volumes_keep_their_files() -> None:
    """Why `slurmstack destroy` is refused there without --delete-data: nothing in the graph keeps a claim."""
    for sections in (stacks.dev(), stacks.existing_full()):
        resources = recorded(sections)
        (namespace,) = [item for item in resources if item.type.endswith(":Namespace")]
        claims = [item for item in resources if item.type.endswith(":PersistentVolumeClaim")]
        assert {(item.deleted_with, item.retained) for item in claims} == {(namespace.urn, False)}
        assert not namespace.retained
        for volume in (item for item in resources if item.type.endswith(":PersistentVolume")):
            assert volume.inputs["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
