"""Slurm's reasons in words."""

from __future__ import annotations

import re

import pytest

from cli.doctor.cluster import reasons
from cli.doctor.cluster.reasons import Kind, meaning

REQUEUED = "job requeued in held state"
"""After `scontrol requeuehold`, as Slurm 24.11 was seen to write it."""

KINDS: dict[Kind, tuple[str, ...]] = {
    "turn": ("Resources", "Priority", "Dependency", "BeginTime", "JobArrayTaskLimit", "Licenses", "Reservation",
        "Prolog", "None", "ReqNodeNotAvail", "NodeDown"),
    "limit": ("QOSGrpCpuLimit", "QOSMaxJobsPerUserLimit", "QOSMaxGRESPerUser", "AssocGrpGRES", "AssocGrpJobsLimit",
        "AssocMaxJobsLimit", "MaxJobsPerAccount", "QOSUsageThreshold"),
    "held": ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "JobHoldMaxRequeue", REQUEUED),
    "never": ("DependencyNeverSatisfied", "BadConstraints", "PartitionDown", "PartitionInactive", "PartitionConfig",
        "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS", "QOSNotAllowed",
        "QOSMaxCpuPerJobLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit",
        "AssocMaxWallDurationPerJobLimit", "QOSMinCpuNotSatisfied", "ReservationDeleted", "DeadLine", "MaxMemPerLimit"),
    "unknown": ("SomethingNew",),
}  # fmt: skip


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


def test_no_command_shows_what_users_wrote_as_it_is() -> None:
    for _, _, _, mend in [*reasons._TABLE, ("", "", "", meaning("SomethingNew").mend)]:
        for command in re.findall(r"(?:squeue|sprio|scontrol show job) [^;]*", mend):
            assert re.search(r"\| cat -v$| (--format|-O)\b", command), command
            assert not re.search(r"%[jkaoZw]", command), command
