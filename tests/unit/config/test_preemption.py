"""Preemption and priority: contradictions that Slurm would refuse, or keep quiet about."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests.unit.config.messages import policy_complaint, policy_complaints, with_sections

QOS: dict[str, Any] = {"high": {"preempt": ["low"]}, "low": {}}
TIERS: dict[str, Any] = {"fast": {"pools": ["cpu"], "priority_tier": 10}, "slow": {"pools": ["cpu", "gpu"]}}


def qos(**low: Any) -> dict[str, Any]:
    return {"qos": {**QOS, "low": low}, "preemption": {"type": "qos"}}


def tiers(mode: str = "requeue", **slow: Any) -> dict[str, Any]:
    slower = {**TIERS["slow"], **slow}
    return {"preemption": {"type": "partition", "mode": mode}, "partitions": {**TIERS, "slow": slower}}


@pytest.mark.parametrize(
    "sections",
    [
        qos(grace_time=60, preempt_mode="cancel", preempt_exempt_time="10"),
        qos() | {"qos": {"high": {"preempt": ["low", "mid"]}, "mid": {"preempt": ["low"]}, "low": {}}},
        tiers(),
        tiers("suspend"),
        tiers("suspend", preempt_mode="requeue"),
        {"preemption": {"type": "none"}, "partitions": TIERS},
        {"slurm": {"settings": {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}}, "qos": QOS},
    ],
)
def test_preemption_that_fits_together_is_accepted(sections: dict[str, Any]) -> None:
    load_config(with_sections(**sections))


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"preemption": {"type": "qos"}}, "preemption.type: is qos, but no QOS preempts another"),
        ({"qos": QOS}, "qos.high.preempt: has no effect with preemption.type none; set the type to qos"),
        ({"preemption": {"mode": "cancel"}}, "preemption.mode: has no effect with preemption.type none"),
        ({"qos": {"low": {"grace_time": 5}}}, "qos.low.grace_time: has no effect with preemption.type none"),
        ({"qos": {"low": {"preempt_mode": "cancel"}}}, "qos.low.preempt_mode: has no effect with"),
        ({"partitions": {"main": {"pools": ["cpu"], "preempt_mode": "off"}}}, "partitions.main.preempt_mode: has no"),
        (qos(preempt=["low"]), "qos.low.preempt: names the QOS itself; remove it"),
        (qos(preempt=["high"]), "qos.high.preempt: is a circle of preemption: high -> low -> high"),
        (qos(preempt_mode="suspend"), "qos.low.preempt_mode: suspend is not for preemption.type qos: with preempt/qos"),
        (
            {"qos": QOS, "preemption": {"type": "qos", "mode": "suspend"}},
            "preemption.mode: suspend is not for preemption.type qos",
        ),
        (
            qos() | {"partitions": {"main": {"pools": ["cpu"], "preempt_mode": "off"}}},
            "partitions.main.preempt_mode: has no effect with preemption.type qos",
        ),
        (tiers() | {"partitions": {"slow": TIERS["slow"]}}, "preemption.type: is partition, but no two partitions"),
        (tiers(priority_tier=10), "preemption.type: is partition, but no two partitions"),
        (tiers(pools=["gpu"]), "preemption.type: is partition, but no two partitions with a pool in common"),
        (tiers(preempt_mode="off"), "preemption.type: is partition, but every partition with a lower"),
        (tiers(preempt_mode="suspend"), "partitions.slow.preempt_mode: suspend needs PreemptMode=SUSPEND,GANG"),
        (tiers() | {"qos": QOS}, "qos.high.preempt: has no effect with preemption.type partition"),
        (tiers() | {"qos": {"low": {"grace_time": 5}}}, "qos.low.grace_time: has no effect with preemption.type part"),
        (
            {**tiers(), "preemption": {"type": "partition", "mode": "suspend", "exempt_time": "10"}},
            "preemption.exempt_time: has no effect with the mode suspend",
        ),
        (
            tiers("suspend") | {"qos": {"low": {"preempt_exempt_time": "10"}}},
            "qos.low.preempt_exempt_time: has no effect with the mode suspend",
        ),
        (
            {"priority": {"decay_half_life": "0"}},
            "priority.decay_half_life: is 0, so usage would add up for ever; set usage_reset_period",
        ),
        ({"priority": {"decay_half_life": "UNLIMITED"}}, "priority.decay_half_life: cannot be unlimited"),
        ({"priority": {"max_age": "0"}}, "priority.max_age: must be a time"),
        ({"priority": {"weights": {"tres": {"gres/fpga": 5}}}}, "priority.weights.tres: names 'gres/fpga'"),
        (qos(preempt_exempt_time="UNLIMITED"), "qos.low.preempt_exempt_time: cannot be unlimited"),
    ],
)
def test_preemption_and_priority_that_contradict_themselves_are_named(sections: dict[str, Any], complaint: str) -> None:
    assert policy_complaint(**sections).startswith(complaint)


def test_a_tier_in_a_partition_s_settings_counts_too() -> None:
    partitions = {"fast": {"pools": ["cpu"], "settings": {"PriorityTier": 10}}, "slow": {"pools": ["cpu"]}}
    load_config(with_sections(preemption={"type": "partition"}, partitions=partitions))


def test_a_tier_of_thousands_of_digits_is_none() -> None:
    partitions = {"fast": {"pools": ["cpu"], "settings": {"PriorityTier": "9" * 5000}}, "slow": {"pools": ["cpu"]}}
    (complaint,) = policy_complaints(preemption={"type": "partition"}, partitions=partitions)
    assert complaint.startswith("preemption.type: is partition, but no two partitions")


def test_usage_that_is_reset_needs_no_half_life() -> None:
    load_config(with_sections(priority={"decay_half_life": "0", "usage_reset_period": "MONTHLY"}))


@pytest.mark.parametrize("value", [-1, 1_000_000_001, "much", 0.5])
def test_weights_are_whole_numbers_within_reason(value: Any) -> None:
    (complaint,) = policy_complaints(priority={"weights": {"qos": value}})
    assert complaint.startswith("priority.weights.qos: ")
