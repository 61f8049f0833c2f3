"""The trial of a configuration: what the scratch slurmctld gets, and what is made of its words."""

from __future__ import annotations

import pytest

from images.controller.check import complaints_in, scratch_files


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        pytest.param("error: Bad SelectTypeParameter: X", "error: Bad SelectTypeParameter: X", id="repeated"),
        # It powers no node on or off.
        pytest.param("error: power_save module disabled, NULL SuspendProgram", "", id="no program for it"),
        ("error: power_save module disabled, invalid SuspendProgram x",) * 2,
    ],
)
def test_what_is_only_the_trial_s_is_no_complaint_and_others_are_told_once(said: str, complaint: str) -> None:
    assert complaints_in([said] * 2) == ((complaint,) if complaint else ())


# ---------------------------------------------------------------- what it gets


def scratch_conf(text: str, **others: str) -> str:
    return scratch_files({"slurm.conf": text, **others}, "/tmp/s", (1111, 2222))["slurm.conf"]


def test_no_program_that_needs_no_job_is_run() -> None:
    for line in (
        "ResumeProgram=/bin/danger", "SuspendProgram=/bin/danger", "resumefailprogram = /bin/danger",
        'SlurmctldPrimaryOnProg="/bin/danger with spaces"', "SlurmSchedLogFile=/danger",
    ):  # fmt: skip
        assert "danger" not in scratch_conf(f"ClusterName=a\n{line}\n")


def test_what_is_not_well_formed_is_left_to_slurm() -> None:
    database = "AccountingStorageType=accounting_storage/slurmdbd\n"
    for line in ("PriorityWeightAge=much", "AccountingStoreFlags=job_comment,job_all", "AccountingStorageEnforce=x"):
        assert line in scratch_conf(f"{database}{line}\n")


def test_the_real_controllers_state_and_port_are_not_touched() -> None:
    conf = scratch_conf(
        "SlurmctldPort=6817\nStateSaveLocation=/var/spool/slurmctld\nSlurmctldPidFile=/run/x SlurmdPort=6818\n"
    )

    assert "6817" not in conf
    assert "6818" not in conf
    assert "/var/spool/slurmctld" not in conf
    assert "SlurmctldPort=1111\n" in conf
    assert "StateSaveLocation=/tmp/s/state\n" in conf


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("PartitionName=x Stat=UP", "PartitionName=x Stat=UP"),
        # There is no database.
        ("PartitionName=main Nodes = ALL QOS=x TRESBillingWeights=CPU=1 State=UP",) * 2,
        # One of its own.
        (
            "AuthAltParameters=jwt_key=/run/slurmstack/keys/jwt_hs256.key,x",
            "AuthAltParameters=jwt_key=/tmp/s/jwt_hs256.key,x",
        ),
    ],
)
def test_lines_keep_their_numbers_and_their_options(line: str, becomes: str) -> None:
    assert scratch_conf(f"# comment\nSlurmctldPort=6817\n\n{line}\n").splitlines()[3] == becomes


def test_the_database_is_left_alone_and_what_needs_it_is_left_out() -> None:
    conf = scratch_conf(
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\nAccountingStorageEnforce=limits\n"
        "AccountingStorageTRES=gres/gpu\nPriorityWeightAge=1\nPriorityWeightFairshare=2\n"
        "PriorityWeightTRES=gres/gpu=3\nPriorityDecayHalfLife=7-0\n"
        "PartitionName=main Nodes=ALL AllowQos=high QOS=x TRESBillingWeights=GRES/gpu=8 MaxTime=5 State=UP\n"
    )

    for word in ("slurmdbd", "AccountingStorage", "PriorityWeight", "TRESBillingWeights", "qos", "QOS"):
        assert word not in conf
    assert "PriorityDecayHalfLife=7-0" in conf
    assert conf.splitlines()[8].split() == ["PartitionName=main", "Nodes=ALL", "MaxTime=5", "State=UP"]


def test_groups_that_come_with_the_configuration_are_not_looked_up_on_this_machine() -> None:
    line = "PartitionName=main Nodes=ALL AllowGroups={} MaxTime=5\n"
    group = "physics:x:2000:alice\nbiology:x:2001:\n"

    assert "AllowGroups" not in scratch_conf(line.format("physics,biology"), group=group)
    assert "AllowGroups=elsewhere MaxTime=5" in scratch_conf(line.format("physics,elsewhere"), group=group)
    assert "AllowGroups=physics" in scratch_conf(line.format("physics"))


def test_included_files_are_cleaned_too() -> None:
    files = {
        "slurm.conf": "Include site.conf\n",
        "site.conf": "ResumeProgram=/bin/danger\n",
        "topology.conf": "SwitchName=s\n",
    }

    found = scratch_files(files, "/tmp/s", (1111, 2222))

    assert "danger" not in found["site.conf"]
    assert found["topology.conf"] == files["topology.conf"]
