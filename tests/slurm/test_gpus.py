"""GPUs, their shares and parts, a GPU driver and a shared volume in the jail: real daemons and real mounts.

The driver is a few files and one small library: that a real one answers is not shown here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from config import load_config
from config.sections.machines import Gpus
from slurm.conf import render
from slurm.sizing import node_conf
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.gpu_driver import bring_amd, bring_driver, bring_mixed_driver, bring_narrow_driver, bring_parts
from tests.slurm.login import BIND
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

SCHEDULER = "SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=0"
"""As in our own defaults: else a job that does not start at once waits for a minute."""

AROUND_JOBS = "".join(f"{name}=/usr/libexec/slurmstack/health-{name.lower()}\n" for name in ("Prolog", "Epilog"))

LOAD = 'python3 -c \'import ctypes; ctypes.CDLL("libcuda.so.1"); print("loaded")\''


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Workers with two GPUs each: shares; two kinds; near one core of a socket; parts; of AMD. And one without."""
    stack = load_config(stacks.existing())
    pool = stack.worker_nodes["gpu"]
    resources = pool.resources.model_copy(update={"cpus": 2, "memory": "1Gi", "gpus": Gpus(count=2, shard=8)})
    pool = pool.model_copy(update={"platform": "gpu-h100-sxm", "resources": resources})
    gpu_conf = node_conf("default", pool)
    assert gpu_conf.endswith(" Gres=gpu:h100:2,shard:8")
    files = {name: content for name, content in render(stack).items() if name != "slurm.conf"}
    config = minimal_config(slurm_version, f"GresTypes=gpu,shard\n{SCHEDULER}\n{AROUND_JOBS}", **files)
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, jail=True)
    sandbox.start_worker_on("default-0", env={"NODE_CONF": gpu_conf}, before=bring_driver)
    sandbox.start_worker("default-2")
    plain = gpu_conf.partition(" Gres=")[0]
    mixed = {"NODE_CONF": f"{plain} Gres=gpu:gtx970:1,gpu:GTX_1060:1"}
    sandbox.start_worker_on("default-1", env=mixed, before=bring_mixed_driver)
    sandbox.start_worker_on("default-3", env={"NODE_CONF": f"{plain} Gres=gpu:h100:2"}, before=bring_narrow_driver)
    sandbox.start_worker_on(
        "default-4", env={"NODE_CONF": f"{plain} Gres=gpu:1g.10gb:2,gpu:3g.40gb:1"}, before=bring_parts
    )
    sandbox.start_worker_on(
        "default-5", env={"NODE_CONF": f"{plain} Gres=gpu:mi300x:2", "GPU_VENDOR": "amd"}, before=bring_amd
    )
    sandbox.wait_for_nodes(6)
    login = sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail"})
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    wait_until((login.root / "run/slurm/conf/slurm.conf").exists, f"sackd: {login.log('sackd')}")
    bound = login.run(["python3", "-c", BIND])
    assert bound.returncode == 0, bound.stdout + bound.stderr
    return sandbox


@pytest.fixture
def jail(cluster: SlurmSandbox) -> Path:
    """The jail as the shared volume has it."""
    return cluster.jail


def srun(cluster: SlurmSandbox, options: str, command: str) -> str:
    """What a step prints that is started in the jail of the login pod. Jobs of root are allowed in this cluster."""
    start = f'cd / && timeout 40 srun {options} bash -c "$1"'
    done = cluster.pods["login-0"].run(["chroot", "/jail", "bash", "-c", start, "bash", command])
    shown = cluster.run("squeue; scontrol show jobs; scontrol show nodes").stdout if done.returncode else ""
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{shown}\n{cluster.logs()}"
    return done.stdout


def test_jobs_get_gpus_by_type_and_by_number(cluster: SlurmSandbox) -> None:
    assert srun(cluster, "--gres=gpu:h100:1", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES") in {
        "default-0 0\n", "default-3 0\n"
    }  # fmt: skip
    assert srun(cluster, "-w default-0 --gpus=2", "echo $CUDA_VISIBLE_DEVICES") == "0,1\n"


def test_jobs_get_shares_of_a_gpu(cluster: SlurmSandbox) -> None:
    shown = cluster.run("sinfo --noheader --Node --nodes=default-0 --format=%G").stdout.strip()
    assert shown.startswith("gpu:h100:2")
    assert ",shard:h100:8" in shown, "four for each GPU"
    tell = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE"
    assert srun(cluster, "--gres=shard:3", tell) == "default-0 0 3\n"


def test_gpus_near_a_part_of_a_socket_do_not_drain_their_node(cluster: SlurmSandbox) -> None:
    """Slurm refuses what it finds itself there: "doesn't match socket boundaries"."""
    assert srun(cluster, "-w default-3 --gpus=h100:2", "echo $CUDA_VISIBLE_DEVICES") == "0,1\n"


def test_jobs_get_parts_of_gpus_by_their_profiles(cluster: SlurmSandbox) -> None:
    tell = "echo $SLURMD_NODENAME $SLURM_STEP_GPUS"
    assert srun(cluster, "--gres=gpu:3g.40gb:1", tell) == "default-4 2\n"
    assert srun(cluster, "--gpus=1g.10gb:2 -N1", tell) == "default-4 0,1\n"


SHOWN = "cd /run/slurmstack/gpu-jobs && grep -r . dcgm | sort"


def started(cluster: SlurmSandbox, node: str, asks: str) -> str:
    """A job of root that runs on the node, with its prolog behind it."""
    batch = f"sbatch --parsable --output=/dev/null --nodelist={node} {asks} --wrap 'sleep 600'"
    job = cluster.run(f"cd / && {batch}").stdout.strip()
    stepd = f"pgrep -f 'slurmstepd: .{job}[.]batch'"
    wait_until(lambda: cluster.run(stepd, pod=node).returncode == 0, f"job {job}: {cluster.logs()}")
    return job


def shown(cluster: SlurmSandbox, node: str) -> list[str]:
    return cluster.run(SHOWN, pod=node).stdout.split("\n")[:-1]


def test_exporters_are_shown_which_jobs_share_a_gpu(cluster: SlurmSandbox) -> None:
    assert shown(cluster, "default-0") == [], "jobs have come and gone before"
    jobs = [started(cluster, "default-0", "--gres=shard:1") for _ in range(2)]
    assert shown(cluster, "default-0") == [f"dcgm/0:{job}" for job in jobs], "jobstats knows no second one"
    cluster.run(f"scancel {jobs.pop()}")
    alone = started(cluster, "default-0", "--gpus=1")
    assert shown(cluster, "default-0") == [f"dcgm/0:{jobs[0]}", f"dcgm/1:{alone}"]
    cluster.run(f"scancel {jobs[0]} {alone}")
    wait_until(lambda: shown(cluster, "default-0") == [], cluster.logs)


def test_of_two_kinds_in_a_node_a_job_gets_the_one_that_it_asked_for(cluster: SlurmSandbox) -> None:
    jobs = [started(cluster, "default-1", f"--gres=gpu:{kind}:1") for kind in ("gtx970", "GTX_1060")]
    assert shown(cluster, "default-1") == [f"dcgm/0:{jobs[1]}", f"dcgm/1:{jobs[0]}"], "by the numbers of their files"
    cluster.run(f"scancel {' '.join(jobs)}")


def test_gpus_of_amd_are_told_to_jobs_in_amd_s_way(cluster: SlurmSandbox) -> None:
    tell = "echo $SLURMD_NODENAME $ROCR_VISIBLE_DEVICES [$CUDA_VISIBLE_DEVICES]"
    assert srun(cluster, "--gpus=mi300x:2 -N1", tell) == "default-5 0,1 []\n"


def test_a_job_in_the_jail_loads_the_driver_of_its_pod(cluster: SlurmSandbox) -> None:
    assert srun(cluster, "-w default-0", f"test -e /.slurmstack/populated && {LOAD}") == "loaded\n"


def test_the_programs_of_the_driver_are_found(cluster: SlurmSandbox) -> None:
    told = srun(cluster, "-w default-0", "nvidia-smi; bash -lc nvidia-smi")
    assert told == "this is the GPU program of the pod\n" * 2


def test_a_node_without_gpus_shows_none_of_it(cluster: SlurmSandbox) -> None:
    shown = srun(cluster, "-w default-2", f"echo [$LD_LIBRARY_PATH]; {LOAD} 2>&1 | tail -n1; ls -A /run/slurmstack/gpu")
    assert shown.splitlines()[0] == "[]"
    assert "cannot open shared object file" in shown.splitlines()[1]
    assert len(shown.splitlines()) == 2


def test_the_shared_volume_has_nothing_of_the_driver(cluster: SlurmSandbox, jail: Path) -> None:
    assert list((jail / "run/slurmstack/gpu").iterdir()) == []
    assert not list(jail.rglob("libcuda*"))
    assert not list(jail.rglob("nvidia-smi"))
