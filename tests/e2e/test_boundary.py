"""Between users of the jail and everybody else, on real Kubernetes: the attempts and the walk of tests/security."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import SlurmOnKubernetes
from tests.security.attempts import EVERYWHERE, OF_USERS, Where
from tests.security.scene import Scene, set_scene
from tests.security.walk import SCRIPT, left_open, walked


@pytest.fixture(scope="module")
def slurm_with_bob(slurm: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    """Alice, who has sudo, and bob. The stack file's users are as before afterwards."""
    before = slurm.sections
    keys = before["users"]["alice"]["ssh_authorized_keys"]
    slurm.change("users", {**before["users"], "bob": {"uid": 10002, "ssh_authorized_keys": keys}})
    slurm.await_idle("default-0", "default-1")
    yield slurm
    slurm.slurm("scancel --user=bob", check=False)
    slurm.sections = before
    slurm.up()


@pytest.fixture(scope="module")
def scene(slurm_with_bob: SlurmOnKubernetes) -> Scene:
    """All on one login node."""
    at = slurm_with_bob.pods()["login-0"]["status"]["podIP"]
    return set_scene(lambda user, command: slurm_with_bob.ssh(command, user=user, at=at), in_kubernetes=True)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_what_a_hostile_user_tries_is_refused(scene: Scene, where: Where) -> None:
    wrong = scene.attack(where)

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("pod", "container"), [("login-0", "sshd"), ("default-0", "slurmd")])
def test_nothing_that_is_bound_into_the_jail_is_open_to_others(
    slurm_with_bob: SlurmOnKubernetes, scene: Scene, pod: str, container: str
) -> None:
    printed = slurm_with_bob.exec(pod, "python3", "-c", SCRIPT, "/jail", container=container)

    assert not left_open(printed)
    assert walked(printed) >= {"/run/munge", "/run/slurm", "/tmp", "/dev", "/dev/shm", "/dev/termination-log"}


def test_sudo_is_root_in_the_jail_and_no_more(scene: Scene) -> None:
    for command in ("grep CapBnd /proc/self/status", "srun -Q grep CapBnd /proc/self/status"):
        assert scene.shell("alice", command).split() == ["CapBnd:", OF_USERS]
