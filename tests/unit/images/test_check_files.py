"""The scratch slurmctld must not reach outside, and its messages must fit the file that the user wrote."""

from __future__ import annotations

from images.controller.check import Scratch, scratch_files

SCRATCH = Scratch(directory="/tmp/s", slurmctld_port=1111, slurmd_port=2222)


def scratch_conf(text: str, **others: str) -> str:
    return scratch_files({"slurm.conf": text, **others}, SCRATCH)["slurm.conf"]


def test_no_program_of_the_site_is_run() -> None:
    for line in (
        "PrologSlurmctld=/bin/danger", "ResumeProgram=/bin/danger", "SuspendProgram=/bin/danger",
        "HealthCheckProgram=/bin/danger", "epilogslurmctld = /bin/danger", 'MailProg="/bin/danger with spaces"',
        "SlurmctldPrimaryOnProg=/bin/danger", "RebootProgram=/bin/danger", "JobCompLoc=/bin/danger",
    ):  # fmt: skip
        assert "danger" not in scratch_conf(f"ClusterName=a\n{line}\n")


def test_the_real_controllers_state_and_port_are_not_touched() -> None:
    conf = scratch_conf(
        "SlurmctldPort=6817\nStateSaveLocation=/var/spool/slurmctld\nSlurmctldPidFile=/run/x SlurmdPort=6818\n"
    )

    assert "6817" not in conf
    assert "6818" not in conf
    assert "/var/spool/slurmctld" not in conf
    assert "SlurmctldPort=1111\n" in conf
    assert "StateSaveLocation=/tmp/s/state\n" in conf


def test_lines_keep_their_numbers() -> None:
    text = "# comment\nSlurmctldPort=6817\n\nPartitionName=x Stat=UP\n"

    assert scratch_conf(text).splitlines()[3] == "PartitionName=x Stat=UP"


def test_the_database_is_left_alone_and_what_needs_it_is_left_out() -> None:
    conf = scratch_conf(
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\nAccountingStorageEnforce=limits\n"
        "AccountingStorageTRES=gres/gpu\nPartitionName=main Nodes=ALL AllowQos=high QOS=x State=UP\n"
    )

    assert "slurmdbd" not in conf
    assert "AccountingStorage" not in conf
    assert "qos" not in conf.lower()
    assert "PartitionName=main Nodes=ALL" in conf
    assert "State=UP" in conf


def test_priorities_that_are_made_from_the_database_are_left_out() -> None:
    conf = scratch_conf(
        "AccountingStorageType=accounting_storage/slurmdbd\nPriorityWeightAge=1\nPriorityWeightFairshare=2\n"
        "PriorityWeightTRES=gres/gpu=3\nPriorityDecayHalfLife=7-0\n"
        "PartitionName=main Nodes=ALL TRESBillingWeights=GRES/gpu=8 MaxTime=5\n"
    )

    assert "PriorityWeight" not in conf
    assert "TRESBillingWeights" not in conf
    assert "PriorityDecayHalfLife=7-0" in conf
    assert conf.splitlines()[5].split() == ["PartitionName=main", "Nodes=ALL", "MaxTime=5"]


def test_groups_that_come_with_the_configuration_are_not_looked_up_on_this_machine() -> None:
    line = "PartitionName=main Nodes=ALL AllowGroups={} MaxTime=5\n"
    group = "physics:x:2000:alice\nbiology:x:2001:\n"

    assert "AllowGroups" not in scratch_conf(line.format("physics,biology"), group=group)
    assert "AllowGroups=elsewhere MaxTime=5" in scratch_conf(line.format("physics,elsewhere"), group=group)
    assert "AllowGroups=physics" in scratch_conf(line.format("physics"))


def test_a_partition_keeps_all_its_options_where_there_is_no_database() -> None:
    line = "PartitionName=main Nodes = ALL QOS=x TRESBillingWeights=CPU=1 State=UP"

    assert scratch_conf(f"{line}\n").splitlines()[0] == line


def test_included_files_are_cleaned_too() -> None:
    files = {
        "slurm.conf": "Include site.conf\n",
        "site.conf": "PrologSlurmctld=/bin/danger\n",
        "topology.conf": "SwitchName=s\n",
    }

    found = scratch_files(files, SCRATCH)

    assert "danger" not in found["site.conf"]
    assert found["topology.conf"] == files["topology.conf"]


def test_the_key_of_the_tokens_is_one_of_the_scratch_slurmctlds_own() -> None:
    line = "AuthAltParameters=jwt_key=/run/slurmstack/keys/jwt_hs256.key,disable_token_creation"

    assert scratch_conf(f"{line}\n").splitlines()[0] == (
        "AuthAltParameters=jwt_key=/tmp/s/jwt_hs256.key,disable_token_creation"
    )
