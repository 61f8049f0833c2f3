"""Slurm's reasons in words."""

from __future__ import annotations

import pytest

from cli.doctor.cluster.reasons import Kind, meaning

REQUEUED = "job requeued in held state"
"""After `scontrol requeuehold`, as Slurm 24.11 was seen to write it."""

KINDS: dict[Kind, tuple[str, ...]] = {
    "turn": (
        "Resources",
        "Priority",
        "Dependency",
        "BeginTime",
        "JobArrayTaskLimit",
        "Licenses",
        "Reservation",
        "Prolog",
        "None",
        "ReqNodeNotAvail",
        "NodeDown",
    ),
    "limit": (
        "QOSGrpCpuLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSMaxGRESPerUser",
        "AssocGrpGRES",
        "AssocGrpJobsLimit",
        "AssocMaxJobsLimit",
        "MaxJobsPerAccount",
        "QOSUsageThreshold",
    ),
    "held": ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "JobHoldMaxRequeue", REQUEUED),
    "never": (
        "DependencyNeverSatisfied",
        "BadConstraints",
        "PartitionDown",
        "PartitionInactive",
        "PartitionConfig",
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "InvalidAccount",
        "InvalidQOS",
        "QOSNotAllowed",
        "QOSMaxCpuPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxCpuPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMinCpuNotSatisfied",
        "ReservationDeleted",
        "DeadLine",
        "MaxMemPerLimit",
    ),
    "unknown": ("SomethingNew",),
}


@pytest.mark.parametrize(("kind", "reason"), [(kind, reason) for kind, found in KINDS.items() for reason in found])
def test_a_reason_has_its_kind_and_a_command(kind: Kind, reason: str) -> None:
    said = meaning(reason)
    assert said.kind == kind
    assert said.mend


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    assert "SomethingNew" in meaning("SomethingNew").words


def test_the_full_text_tells_more_where_nodes_are_not_available() -> None:
    maintenance = "ReqNodeNotAvail, Reserved for maintenance"
    assert "maintenance reservation" in meaning("ReqNodeNotAvail", maintenance).words
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert "down, drained" in meaning("Resources", down).words
