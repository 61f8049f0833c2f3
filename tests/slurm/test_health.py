"""Checks, prolog, epilog and watcher with real daemons: faults drain exactly the node that has them, and jobs go on.

A drain stands for a second at least here, not for two minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from config import load_config
from config.sections.health import Health
from images.health.watch.decide import HOLD_SECONDS
from slurm.health import check_settings, watch_settings
from tests import stacks
from tests.slurm.asked import Asked
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import LONG_LINES, add_accounts, identity, lines_of, minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.stacks import ROOT

INTERVAL = 3
"""Seconds between two runs; the stack file allows 10 at least."""

NODES = ("default-0", "default-1", "default-2")
USER = 10001
KILL_WAIT = 3
RECORDED = ROOT / "tests/unit/images/health/data"

FILL = "dd if=/dev/zero of=/scratch/big bs=1M count=16 status=none || true"

ALONE = Health.model_validate({"max_drained": 1, "machines": {"follow": False}})
WATCHER = {
    "SLURM_CONF": "/var/spool/slurmctld/slurmstack/current/slurm.conf",
    "SETTINGS": watch_settings(ALONE),
}


@dataclass(frozen=True, kw_only=True)
class Healthy(Asked):
    """A cluster of three nodes, each with a scratch disk of 16 MiB that a check looks at, and one GPU."""

    def reason(self, name: str) -> str:
        """Why it is drained; empty if it is not."""
        node = self.node(name)
        return str(node["reason"]) if "DRAIN" in node["state"] else ""

    def wait(self, name: str, pattern: str) -> None:
        """Until the reason of a node matches; an empty pattern: until there is none."""

        def found() -> bool:
            text = self.reason(name)
            return bool(re.search(pattern, text)) if pattern else not text

        wait_until(found, lambda: f"{name}: {pattern!r}, not {self.reason(name)!r}\n{self.sandbox.logs()}")

    def submit(self, command: str, *options: str) -> str:
        """A job of the user; its number."""
        argv = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sbatch", "--parsable"]
        done = self.sandbox.run([*argv, "--chdir=/", "--output=/dev/null", *options, f"--wrap={command}"])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def prepare(pod: Pod) -> None:
    """What the machine brings: a small scratch disk, an nvidia-smi, and a user that all nodes know."""
    tool = pod.root / "usr/local/bin/nvidia-smi"
    tool.write_text("#!/usr/bin/python3\n" + (ROOT / "tests/fakes/gpu_tools.py").read_text())
    tool.chmod(0o755)
    done = pod.run(
        "set -e; mkdir -p /scratch /run/fake-gpus; mount -t tmpfs -o size=16m,mode=1777 tmpfs /scratch; "
        f"echo alice:x:{USER}:{USER}::/:/bin/sh >> /etc/passwd; echo alice:x:{USER}: >> /etc/group"
    )
    assert done.returncode == 0, done.stderr
    set_gpus(pod, used_mib=0)


def set_gpus(pod: Pod, *, used_mib: int) -> None:
    """What nvidia-smi of this node says from now on."""
    lines = (RECORDED / "nvidia/h100-8.csv").read_text().splitlines()
    assert "memory.used" not in lines[0]
    text = "".join(f"{line}, {used}\n" for line, used in zip(lines, ["memory.used", str(used_mib)], strict=False))
    temporary = pod.root / "run/fake-gpus/.gpus.csv"
    temporary.write_text(text)
    temporary.rename(pod.root / "run/fake-gpus/gpus.csv")


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str, tmp_path_factory: pytest.TempPathFactory) -> Healthy:
    stack = load_config(stacks.dev())
    more = lines_of(stack, "Prolog", "Epilog", "HealthCheckProgram", "HealthCheckNodeState")
    more += f"HealthCheckInterval={INTERVAL}"
    scheduler = "SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=0,sched_interval=5,sched_min_interval=0"
    # A requeued job waits for so long (slurm.conf(5), AuthInfo); the default is two minutes.
    requeue = "AuthInfo=cred_expire=10"
    kill = f"KillWait={KILL_WAIT}\nUnkillableStepTimeout=60"
    config = minimal_config(
        slurm_version,
        f"GresTypes=gpu\n{scheduler}\n{requeue}\n{kill}\n{more}\n",
        **{"gres.conf": f"{LONG_LINES}Name=gpu File=/dev/zero\n"},
    )
    settings = tmp_path_factory.mktemp("settings")
    document = json.loads(check_settings(stack.health, ()))
    document["pools"]["default"] = {"local_disks": ["/scratch"]}
    (settings / "settings.json").write_text(json.dumps(document))
    sandbox = slurm_cluster(slurm_version, config=config, workers=0)
    sandbox.node_conf = "CPUs=2 RealMemory=1000 Gres=gpu:1 Feature=default"
    add_accounts(identity({"alice": USER}, "/"), sandbox.controller.root)
    for name in NODES:
        sandbox.start_worker_on(name, binds={settings: "/config/health"}, before=prepare)
    sandbox.wait_for_nodes(len(NODES))
    hold = sandbox.controller.root / "usr/lib/slurmstack/images/health/watch/decide.py"
    hold.write_text(hold.read_text().replace(f"HOLD_SECONDS: Final = {HOLD_SECONDS}", "HOLD_SECONDS: Final = 1.0"))
    sandbox.controller.start_program("health-watch", WATCHER)
    return Healthy(sandbox=sandbox)


@pytest.fixture(autouse=True)
def well(cluster: Healthy) -> Iterator[None]:
    """Every test begins and ends with nodes that are well and free."""
    yield
    cluster.run("scancel --user=alice --state=PENDING; scancel --user=alice")
    for name in NODES:
        pod = cluster.sandbox.pods[name]
        cluster.run("rm -f /scratch/*", pod=name)
        set_gpus(pod, used_mib=0)
    for name in NODES:
        cluster.wait(name, "")


@pytest.mark.in_gate
def test_a_fault_drains_its_node_alone_within_the_limit_until_it_is_gone(cluster: Healthy) -> None:
    job = cluster.submit("until [ -e /tmp/drained ]; do sleep 0.2; done", "--nodelist=default-1")
    cluster.sandbox.wait_for_job(job, "RUNNING")
    cluster.run(FILL, pod="default-1")
    cluster.wait("default-1", r"^health/disks \[node\]: /scratch: ")
    cluster.run(FILL, pod="default-0")
    log = cluster.sandbox.controller.log
    wait_until(lambda: "not drained, as the limit of 1 is reached" in log("health-watch"), lambda: log("health-watch"))
    assert [bool(cluster.reason(name)) for name in NODES] == [False, True, False]
    cluster.run("rm /scratch/big", pod="default-0")
    cluster.run("touch /tmp/drained", pod="default-1")
    cluster.sandbox.wait_for_job(job, "COMPLETED")  # what runs there goes on
    assert cluster.sandbox.job(job)["Restarts"] == "0"
    cluster.run("rm /scratch/big", pod="default-1")
    cluster.wait("default-1", "")


def test_a_job_that_finds_its_gpu_in_use_starts_elsewhere(cluster: Healthy) -> None:
    """Somebody's leftover holds the GPU's memory: the prolog refuses, Slurm requeues the job, the node is drained."""
    for name in NODES:
        cluster.wait(name, "")  # that no fault of the test before is left
    cluster.run("scontrol update nodename=default-1,default-2 weight=5")  # so that default-0 is the first choice
    job = cluster.submit("sleep 1", "--gres=gpu:1", "--requeue", "--hold")
    set_gpus(cluster.sandbox.pods["default-0"], used_mib=70_000)
    cluster.run(f"scontrol release {job}")  # at once, before an idle node's own check sees it
    cluster.sandbox.wait_for_job(job, "COMPLETED")
    found = cluster.sandbox.job(job)
    assert (found["NodeList"] != "default-0", found["Restarts"]) == (True, "1"), cluster.sandbox.logs()
    cluster.wait("default-0", r"^health/gpu-free \[\w+\]: ")
    set_gpus(cluster.sandbox.pods["default-0"], used_mib=0)
    cluster.wait("default-0", "")
