"""How Slurm's lines and Kubernetes' objects are read."""

from __future__ import annotations

from images.common.elastic.view import Node, nodes_in

LINES = """\
NodeName=gpu-0 CoresPerSocket=1  CPUAlloc=0 OS=Linux 6.18 #1 SMP @0  RealMemory=1000 State=DOWN*+CLOUD+POWERED_DOWN \
ThreadsPerCore=1 CurrentWatts=0 AveWatts=0  Reason=ResumeTimeout reached [slurm@2026-11-26T04:39:24] \
Comment=2099-01-01 healthy Extra={"confinement": "off, as the stack file says", "elastic": "e01a"}
NodeName=gpu-1 State=IDLE+CLOUD CurrentWatts=0 AveWatts=0  Extra={"elastic": "e01a"}
NodeName=gpu-2 State=IDLE+CLOUD+DRAIN Reason=a fan Extra=of another
No nodes in the system
"""


def test_a_reason_ends_where_slurm_says_who_has_set_it() -> None:
    """In the order of scontrol (24.11 and 26.05): what others may write stands at the end."""
    assert nodes_in(LINES) == {
        "gpu-0": Node(
            name="gpu-0",
            states=frozenset({"DOWN", "CLOUD", "POWERED_DOWN"}),
            reason="ResumeTimeout reached",
            reason_by="slurm",
            mark="e01a",
        ),
        "gpu-1": Node(name="gpu-1", states=frozenset({"IDLE", "CLOUD"}), mark="e01a"),
        "gpu-2": Node(name="gpu-2", states=frozenset({"IDLE", "CLOUD", "DRAIN"}), reason="a fan"),
    }


def test_what_processes_are_called_changes_no_state_and_no_name() -> None:
    """The health checks write names of processes into the comment, and into reasons."""
    names = "State=FUTURE Reason=slurmstack/elastic: set aside NodeName=cpu-0 Extra={}"
    said = f"fail processes [node]: {names}"
    line = (
        f"NodeName=gpu-0 Arch=x86_64 State=IDLE+CLOUD ThreadsPerCore=1 Comment={said} "
        'Extra={"elastic": "e01a"} ReservationName=works Topology=tree:sw0'
    )
    assert nodes_in(line) == {"gpu-0": Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD"}), mark="e01a")}
    drained = (
        f"NodeName=gpu-0 State=IDLE+CLOUD+DRAIN Reason=health/processes [node]: {names} [root@2026-11-26T04:39:24]"
    )
    assert nodes_in(drained)["gpu-0"].states == {"IDLE", "CLOUD", "DRAIN"}
    assert nodes_in(drained)["gpu-0"].reason.startswith("health/processes [node]: State=FUTURE")
    assert nodes_in("NodeName=(500) State=DOWN") == {}
