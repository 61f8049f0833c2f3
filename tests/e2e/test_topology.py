"""Slurm knows how the network connects its nodes: from labels of the Kubernetes nodes, without any restart."""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes, wait_until

TIERS = tuple(f"topology.nebius.com/tier-{number}" for number in range(3))


def _label(slurm: SlurmOnKubernetes, machine: str, *values: str) -> None:
    """Label a Kubernetes node with its switches from the core down; without values, take the labels away."""
    labels = [f"{tier}={value}" for tier, value in zip(TIERS, values, strict=True)] if values else []
    labels = labels or [f"{tier}-" for tier in TIERS]
    slurm.kubectl.run("label", "node", machine, "--overwrite", *labels)


def _machines(slurm: SlurmOnKubernetes) -> list[str]:
    return sorted(str(item["metadata"]["name"]) for item in slurm.kubectl.items("node"))


def _switches(slurm: SlurmOnKubernetes) -> dict[str, set[str]]:
    """Slurm nodes below each leaf switch, as `scontrol show topology` has them."""
    shown = slurm.slurm("scontrol show topology", check=False)
    lines = [dict(word.partition("=")[::2] for word in line.split()) for line in shown.splitlines()]
    return {
        line["SwitchName"]: set(slurm.slurm(f"scontrol show hostnames {line['Nodes']}").split())
        for line in lines
        if line.get("Level") == "0" and line["Nodes"]
    }


def _below(slurm: SlurmOnKubernetes, machine: str) -> set[str]:
    """Slurm nodes whose pods run on a machine."""
    return {
        name
        for name, pod in slurm.pods().items()
        if "slurmstack/pool" in pod["metadata"]["labels"] and pod["spec"].get("nodeName") == machine
    }


def test_labels_become_a_tree_and_a_relabelled_machine_moves_in_it_under_a_running_job(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm, before, machines = two_nodes, two_nodes.sections, _machines(two_nodes)
    for number, machine in enumerate(machines):
        _label(slurm, machine, "core", "spine", f"leaf-{number}")
    try:
        slurm.change("topology", {"plugin": "tree"})
        wanted = {f"core.spine.leaf-{number}": _below(slurm, machine) for number, machine in enumerate(machines)}
        wanted = {switch: nodes for switch, nodes in wanted.items() if nodes}
        wait_until(lambda: _switches(slurm) == wanted, f"the tree {wanted}")
        slurm.await_idle("default-0", "default-1")

        job = slurm.submit("until test -e ~/moved; do sleep 0.2; done", "-N2")
        slurm.await_job(job, "RUNNING")
        pods = slurm.pod_uids()
        machine = next(machine for machine in machines if _below(slurm, machine))
        nodes = _below(slurm, machine)
        _label(slurm, machine, "core", "spine", "leaf-9")

        wait_until(lambda: _switches(slurm).get("core.spine.leaf-9") == nodes, "the machine at its new switch")
        assert slurm.job_state(job) == "RUNNING"
        assert slurm.pod_uids() == pods
        slurm.ssh("touch ~/moved")
        slurm.await_job(job)
        slurm.ssh("rm ~/moved")

        slurm.kubectl.run("delete", "pod", "default-1", "-n", slurm.namespace)
        slurm.await_idle("default-0", "default-1")  # the new one has waited, drained, for its place
    finally:
        slurm.sections = before
        slurm.up()
        for machine in machines:
            _label(slurm, machine)
