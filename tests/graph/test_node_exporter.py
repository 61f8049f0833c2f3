"""The node exporter: what it sees of a machine, and where it runs."""

from __future__ import annotations

from typing import Any

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def recorded(**changes: Any) -> Recording:
    sections = with_change(stacks.existing_full(), "monitoring", {"install": True, "nodes": True})
    for path, value in changes.items():
        sections = with_change(sections, path.replace("__", "."), value)
    return record(sections, stack="prod")


def pod(recording: Recording) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == "slurm-node-exporter-pods"]
    return dict(reveal(found.inputs)["spec"]["template"]["spec"])


def test_it_sees_the_machine_s_figures_and_may_do_nothing() -> None:
    spec = pod(recorded())
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert (context["runAsUser"], context["readOnlyRootFilesystem"], context["capabilities"]) == (
        954, True, {"drop": ["ALL"]},
    )  # fmt: skip
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert paths == {"proc": "/proc", "sys": "/sys"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in paths)


def test_in_a_cluster_with_user_namespaces_it_has_none_as_no_ids_are_mapped_in_proc() -> None:
    recording = recorded(cluster__user_namespaces=True)
    assert "hostUsers" not in pod(recording)
    (exporter,) = [item for item in recording if item.name == "slurm-exporter-pods"]
    assert reveal(exporter.inputs)["spec"]["template"]["spec"]["hostUsers"] is False


def test_it_goes_where_workers_may_go() -> None:
    everywhere = pod(recorded())
    assert "affinity" not in everywhere, "the pool `cpu` may be on any machine"
    assert {toleration["key"] for toleration in everywhere["tolerations"]} == {"nvidia.com/gpu"}
    pools = {name: pool for name, pool in stacks.existing()["worker_nodes"].items() if name != "plain"}
    chosen = pod(recorded(worker_nodes=with_change(pools, "cpu.node_selector", {"pool": "cpu", "zone": "a"})))
    required = chosen["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [
        {wanted["key"]: wanted["values"] for wanted in term["matchExpressions"]}
        for term in required["nodeSelectorTerms"]
    ]
    assert terms == [{"pool": ["cpu"], "zone": ["a"]}, {"pool": ["gpu"]}]
