"""Priority, preemption, licenses, access to partitions and rules at submission, as they stand in Slurm's files."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.conf import effective_settings, partition_lines, render
from tests import stacks


def settings(**sections: Any) -> dict[str, str]:
    return effective_settings(load_config(stacks.existing() | sections))


def partition(option: str, **sections: Any) -> dict[str, str]:
    """Value of an option by partition, empty where it is not set."""
    return {line.name: line.option(option) for line in partition_lines(load_config(stacks.existing() | sections))}


def with_partition(**options: Any) -> dict[str, Any]:
    """The two partitions, with more options for `main`."""
    partitions = stacks.existing()["partitions"]
    return {**partitions, "main": {**partitions["main"], **options}}


def test_priority_is_made_from_the_stack_file() -> None:
    weights = {"fairshare": 7, "qos": 6, "age": 5, "tres": {"cpu": 4, "gres/gpu": 3}}
    found = settings(priority={"weights": weights, "decay_half_life": "1-0"})
    assert found["PriorityType"] == "priority/multifactor"
    assert (found["PriorityWeightFairshare"], found["PriorityWeightQOS"], found["PriorityWeightAge"]) == ("7", "6", "5")
    assert found["PriorityWeightTRES"] == "cpu=4,gres/gpu=3"
    assert found["PriorityDecayHalfLife"] == "1-0"
    assert "PriorityFlags" not in found, "Fair Tree is Slurm's default"
    assert "PriorityWeightTRES" not in settings()


def test_a_user_s_own_setting_wins_over_each_section() -> None:
    own = {"priorityweightqos": 1, "JobRequeue": 0}
    found = settings(slurm={"settings": own}, preemption={"type": "partition"}, priority={"max_age": "9-0"})
    assert (found["PriorityWeightQOS"], found["JobRequeue"]) == ("1", "0")
    assert found["PriorityMaxAge"] == "9-0"


QOS = {"low": {}, "high": {"preempt": ["low"]}}


@pytest.mark.parametrize("mode", ["requeue", "cancel"])
@pytest.mark.parametrize(
    ("kind", "plugin", "sections"), [("qos", "preempt/qos", {"qos": QOS}), ("partition", "preempt/partition_prio", {})]
)
def test_jobs_give_way_by_qos_or_by_partition(kind: str, plugin: str, sections: dict[str, Any], mode: str) -> None:
    sections = {**sections, "preemption": {"type": kind, "mode": mode, "exempt_time": "10"}}
    found = settings(**sections)
    assert found["PreemptType"] == plugin
    assert found["PreemptMode"] == mode.upper()
    assert found["PreemptExemptTime"] == "10"
    assert found["JobRequeue"] == "1"
    assert partition("OverSubscribe", **sections) == {"main": "", "gpu": ""}


def test_suspended_jobs_are_woken_again_and_their_partitions_allow_it() -> None:
    preemption = {"type": "partition", "mode": "suspend"}
    assert settings(preemption=preemption)["PreemptMode"] == "SUSPEND,GANG"
    assert partition("OverSubscribe", preemption=preemption) == {"main": "FORCE:1", "gpu": "FORCE:1"}
    partitions = with_partition(preempt_mode="requeue")
    assert partition("PreemptMode", preemption=preemption, partitions=partitions) == {"main": "REQUEUE", "gpu": ""}
    assert partition("OverSubscribe", preemption=preemption, partitions=partitions) == {"main": "", "gpu": "FORCE:1"}


def test_a_partition_s_own_settings_win() -> None:
    partitions = with_partition(settings={"oversubscribe": "NO"})
    sections = {"partitions": partitions, "preemption": {"type": "partition", "mode": "suspend"}}
    assert partition("OverSubscribe", **sections) == {"main": "NO", "gpu": "FORCE:1"}


def test_licenses_are_counted_and_planned_for() -> None:
    found = settings(licenses={"matlab": 4, "fluent": 30})
    assert found["Licenses"] == "matlab:4,fluent:30"
    assert "bf_licenses" in found["SchedulerParameters"].split(",")
    assert "Licenses" not in settings()
    assert "bf_licenses" not in settings()["SchedulerParameters"]


def test_a_partition_says_who_may_use_it() -> None:
    sections = {
        "groups": {"physics": {"gid": 2000}, "biology": {"gid": 2001}},
        "accounts": {"ml": {}, "web": {}},
        "qos": {"high": {}, "low": {}},
    }
    options = {
        "allow_groups": ["physics", "biology"], "allow_accounts": ["ml", "web"], "deny_qos": ["low"],
        "qos": "high", "priority_tier": 5, "priority_job_factor": 0,
    }  # fmt: skip
    (line, _) = partition_lines(load_config(stacks.existing() | sections | {"partitions": with_partition(**options)}))
    assert str(line).endswith(
        " AllowAccounts=ml,web AllowGroups=physics,biology DenyQos=low QOS=high PriorityTier=5 PriorityJobFactor=0"
    )
    sections["partitions"] = with_partition(deny_accounts=["ml"], allow_qos=["high"])
    (line, _) = partition_lines(load_config(stacks.existing() | sections))
    assert str(line).endswith(" DenyAccounts=ml AllowQos=high")


def test_the_common_default_time_is_for_partitions_without_one() -> None:
    sections = {"job_submit": {"default_time": "2:00:00"}, "partitions": with_partition(default_time="10")}
    assert partition("DefaultTime", **sections) == {"main": "10", "gpu": "2:00:00"}
    assert partition("DefaultTime") == {"main": "", "gpu": ""}


ACCOUNTS: dict[str, Any] = {"accounts": {"ml": {}}}


def test_there_is_a_script_only_where_there_is_a_rule() -> None:
    for rules, wanted in (
        ({}, False),
        ({"default_time": "60"}, False),
        ({"require_account": True}, True),
        ({"gpus_only_in_gpu_partitions": True}, True),
    ):
        config = load_config(stacks.existing() | ACCOUNTS | {"job_submit": rules})
        assert ("job_submit.lua" in render(config)) is wanted
        assert (effective_settings(config).get("JobSubmitPlugins") == "lua") is wanted


def script(**changes: Any) -> str:
    sections = stacks.existing() | {"job_submit": {"gpus_only_in_gpu_partitions": True}} | changes
    return render(load_config(sections))["job_submit.lua"]


def test_the_script_knows_which_partitions_have_gpus() -> None:
    partitions = {
        "cpu": {"pools": ["cpu", "plain"]},
        "gpu": {"pools": ["gpu"], "default": True},
        "both": {"pools": ["cpu", "gpu"]},
        "whole": {"pools": ["gpu"], "settings": {"oversubscribe": "exclusive"}},
    }
    text = script(partitions=partitions)
    assert '["cpu"] = {some = false, every = false}' in text
    assert '["gpu"] = {some = true, every = true}' in text
    assert '["both"] = {some = true, every = false}' in text
    assert '["whole"] = {some = true, every = false}' in text
    assert 'DEFAULT_PARTITION = "gpu"' in text


def test_the_default_partition_may_be_named_by_a_setting() -> None:
    partitions = {"a": {"pools": ["cpu"]}, "b": {"pools": ["gpu"], "settings": {"default": True}}}
    assert 'DEFAULT_PARTITION = "b"' in script(partitions=partitions)
    assert 'DEFAULT_PARTITION = ""' in script(partitions={"a": {"pools": ["cpu"]}, "b": {"pools": ["gpu"]}})
