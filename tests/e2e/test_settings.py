"""A changed Slurm setting is active without restarts; a wrong one fails the apply and changes nothing."""

from __future__ import annotations

import pytest

from tests.e2e.harness import SlurmOnKubernetes


def _setting(slurm: SlurmOnKubernetes, name: str) -> str:
    shown = slurm.slurm("scontrol show config")
    return next(line.split("=", 1)[1].strip() for line in shown.splitlines() if line.split("=")[0].strip() == name)


def test_a_changed_setting_is_active_without_a_restart_and_with_jobs_unharmed(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    job = slurm.submit("until test -e ~/done; do sleep 0.2; done", "-N2")
    slurm.await_job(job, "RUNNING")
    before, starts = slurm.pod_uids(), _starts(slurm)
    slurm.change("slurm.settings.MinJobAge", 301)
    assert _setting(slurm, "MinJobAge") == "301 sec"
    assert slurm.job_state(job) == "RUNNING"
    slurm.ssh("touch ~/done")
    slurm.await_job(job)
    slurm.ssh("rm ~/done")
    assert slurm.pod_uids() == before
    assert _starts(slurm) == starts


def _starts(slurm: SlurmOnKubernetes) -> dict[str, list[int]]:
    """How often each container of the workers has started again."""
    return {
        name: [container["restartCount"] for container in pod["status"]["containerStatuses"]]
        for name, pod in slurm.pods().items()
        if name.startswith("default")
    }


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("slurm.settings.DefMemPerCPUU", 5, "DefMemPerCPUU"),
        ("slurm.settings.PriorityType", "priority/nonsense", "priority/nonsense"),
        ("partitions.main.settings", {"PreemptMode": "nonsense"}, "PreemptMode"),
    ],
)
def test_a_wrong_setting_fails_with_slurm_s_own_message_and_the_old_ones_go_on(
    two_nodes: SlurmOnKubernetes, path: str, value: object, message: str
) -> None:
    slurm = two_nodes
    before, config = (
        slurm.pod_uids(),
        slurm.slurm("scontrol show config | grep -v -e 'Configuration data' -e BOOT_TIME"),
    )
    good = slurm.sections
    done = slurm.change(path, value, check=False)
    slurm.sections = good
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert slurm.slurm("scontrol show config | grep -v -e 'Configuration data' -e BOOT_TIME") == config
    assert len(slurm.ssh("srun -N2 hostname").split()) == 2
    slurm.up()
    assert slurm.pod_uids() == before


def test_a_controller_that_restarts_with_a_wrong_configuration_keeps_the_good_one(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    good = slurm.sections
    assert slurm.change("slurm.settings.NoSuchKey", 1, check=False).returncode == 1
    slurm.sections = good
    slurm.kubectl.run("delete", "pod", "controller-0", "-n", slurm.namespace)
    assert len(slurm.ssh("srun -N2 hostname").split()) == 2
    slurm.up()
