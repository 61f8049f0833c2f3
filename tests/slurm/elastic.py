"""A sandbox with an elastic pool: `elastic` beside slurmctld, a Kubernetes API, and who starts the pods that it has."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from zlib import crc32

from config.cluster import ClusterConfig
from config.rules.nodes import HIDDEN
from images.elastic.nodes import SETTINGS, TEMPLATE, pool_of
from slurm.conf import slurm_conf
from slurm.elastic import POOLS_FILE
from tests.slurm.kubernetes import ENVIRONMENT, NAMESPACE, PODS, KubernetesSandbox
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import Pod, wait_until

TEMPLATES = f"/api/v1/namespaces/{NAMESPACE}/podtemplates"

KEYS = (
    "ResumeProgram", "SuspendProgram", "ResumeFailProgram", "PrologSlurmctld", "SuspendTime", "SuspendTimeout",
    "ResumeTimeout", "ResumeRate", "SuspendRate", "SuspendExcStates", "SlurmctldParameters",
)  # fmt: skip

CONF = "CPUs=2 RealMemory=1000 Feature=gpu"


def elastic_config(version: str, stack: ClusterConfig, *more: str, **files: str) -> dict[str, str]:
    """The least configuration with what the stack's slurm.conf has about elastic pools; `more`: lines of slurm.conf."""
    lines = slurm_conf(stack).splitlines()
    kept = [line for line in lines if line.partition("=")[0] in KEYS or f"={HIDDEN}" in line]
    kept += ["NodeSet=gpu Feature=gpu", "PartitionName=gpu Nodes=gpu", *more]
    return minimal_config(version, "\n".join(kept), **{POOLS_FILE: "gpu\n", **files})


NONE = {f"gpu-{number}": "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN" for number in range(4)}
"""All nodes of the usual pool are off."""


class ElasticSandbox(KubernetesSandbox):
    """Nodes `gpu-0`, ... come and go."""

    def __init__(self, version: str, *, config: Mapping[str, str], most: int = 4, **more: Any) -> None:
        self.machines = 100
        """How many pods have room. Those beyond wait."""
        self.preemptible = False
        """Whether the machines of pods that leave are taken back."""
        self.stuck: set[str] = set()
        """Pods that do not go, as their machine's kubelet is dead."""
        self.machine_of: dict[str, str] = {}
        """Pod -> its machine; `node-0` where nothing is said."""
        self.most = most
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._run_pods)
        self._lock = threading.RLock()
        super().__init__(version, config=config, **{"nodes": {}, **more, "workers": 0})

    def start_controller(self, *, daemons: bool = True) -> Pod:
        pod = super().start_controller(daemons=daemons)
        self.set_pool()
        self.start_elastic()
        if not self._kubelet.is_alive():
            self._kubelet.start()
        return pod

    def start_elastic(self) -> None:
        """The program, in the controller's pod."""
        self.controller.start_program("elastic", {**ENVIRONMENT, **self.controller.slurm_env})

    def restart_slurmctld(self, signal: str = "TERM") -> None:
        self.run(f"pkill -{signal} -x slurmctld")
        wait_until(lambda: self.run("pgrep -x slurmctld").returncode != 0, "slurmctld has ended")
        self.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, "slurmctld answers")

    def set_pool(self, name: str = "gpu", **changes: Any) -> None:
        """A pool's PodTemplate."""
        said = {"min": 0, "max": self.most, "conf": f"{CONF} Weight=1000", **changes}
        said["mark"] = f"{crc32(said['conf'].encode()):x}"
        metadata = {"labels": {"slurmstack/pool": name}, "annotations": {SETTINGS: json.dumps(said), TEMPLATE: "0123"}}
        template = {"metadata": {"labels": {"slurmstack/pool": name}}, "spec": {"containers": []}}
        self._put(TEMPLATES, name, metadata=metadata, template=template)

    def remove_pool(self) -> None:
        """Its PodTemplate goes, and its pods with it. Those that have no machine are gone at once. Another stays."""
        assert self.api is not None
        self.set_pool("other", max=0)
        self.api.remove(TEMPLATES, "gpu")
        for name in self.elastic_pods():
            self.ask_to_leave(name)

    def _mark(self) -> str:
        """As the template of now has it."""
        assert self.api is not None
        pool = pool_of(self.api.collections[TEMPLATES]["gpu"])
        assert pool is not None
        return pool.mark

    def worker_env(self) -> dict[str, str]:
        """What its template tells slurmd's start."""
        return {"NODE_CONF": CONF, "ELASTIC": self._mark()}

    def elastic_pods(self) -> dict[str, dict[str, Any]]:
        """Pods that the program has made and that are not gone."""
        assert self.api is not None
        with self.api.changed:
            pods = dict(self.api.collections.get(PODS, {}))
        return {name: pod for name, pod in pods.items() if TEMPLATE in pod["metadata"].get("labels", {})}

    def said(self) -> str:
        """What the programs that matter here have logged lately."""
        queue = self.run("squeue --all --format='%i %T %r %S %N'; scontrol show nodes --all --oneliner").stdout
        logs = "\n".join(self.controller.log(program)[-3000:] for program in ("elastic", "slurmctld"))
        logs += "\n".join(
            f"{name}: {pod.log('munged')[-500:]}\n{pod.log('slurmd')[-1500:]}" for name, pod in self.pods.items()
        )
        return f"{logs}\n{queue}"

    def lose(self, name: str, uid: str = "") -> None:
        """A pod vanishes with its machine. `uid`: only if it is still the same."""
        assert self.api is not None
        with self._lock:
            pod = self.api.collections[PODS].get(name)
            if pod is None or uid not in {"", pod["metadata"]["uid"]}:
                return
            if name in self.pods:
                self.remove_pod(name)
            self.api.remove(PODS, name)

    def ask_to_leave(self, name: str) -> None:
        """As `kubectl drain` does."""
        assert self.api is not None
        pod = self.api.collections[PODS].get(name)
        if pod is not None:
            self.api.put(
                PODS, name, **{**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            )

    def states(self) -> dict[str, str]:
        """State of each node, as scontrol has it, without what it says of plans, and of nodes that are off."""
        lines = self.run("scontrol show nodes --all --oneliner").stdout.splitlines()
        found = {line.split()[0].partition("=")[2]: line.partition(" State=")[2] for line in lines if " State=" in line}
        unsaid = {"PLANNED", "NOT_RESPONDING"}
        return {
            name: "+".join(one for one in text.split()[0].split("+") if one not in unsaid)
            for name, text in found.items()
        }

    def _run_pods(self) -> None:
        """As scheduler and kubelet."""
        busy: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(max_workers=8) as kubelets:
            while not self._over.wait(0.1):
                for name in self.elastic_pods():
                    if name not in busy or busy[name].done():
                        busy[name] = kubelets.submit(self._care_for, name)

    def _care_for(self, name: str) -> None:
        assert self.api is not None
        with self._lock:
            pod = self.api.collections[PODS].get(name)
            runs = name in self.pods
            if pod is None:
                return
            leaves = "deletionTimestamp" in pod["metadata"]
            if not leaves and not runs and len(self.elastic_pods().keys() & self.pods.keys()) < self.machines:
                self.api.put(
                    PODS, name, **{**pod, "spec": {**pod["spec"], "nodeName": self.machine_of.get(name, "node-0")}}
                )
                self.start_worker_on(name, env=self.worker_env())
        if not leaves or name in self.stuck:
            return
        if runs:
            with contextlib.suppress(KeyError):  # it is lost meanwhile
                notice = "env PREEMPTIBLE=yes " if self.preemptible else ""
                self.run(f"{notice}/usr/libexec/slurmstack/leave", pod=name)
        self.lose(name, uid=pod["metadata"]["uid"])

    def _write_hosts(self) -> None:
        super()._write_hosts()
        for pod in self.pods.values():
            hosts = pod.root / "etc/hosts"
            own = hosts.read_text()
            address = next(line.split()[0] for line in own.splitlines() if line.endswith(" controller-0"))
            hosts.write_text(f"{own}{address} elastic\n")

    def __exit__(self, *arguments: object) -> None:
        self._over.set()
        if self._kubelet.is_alive():
            self._kubelet.join()
        super().__exit__(*arguments)


def submit(elastic: ElasticSandbox, *options: str, script: str = "true") -> str:
    done = elastic.run(["sbatch", "--parsable", "--partition=gpu", "--output=/dev/null", *options, "--wrap", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(elastic: ElasticSandbox, job: str) -> str:
    return elastic.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()


def await_state(elastic: ElasticSandbox, job: str, *states: str) -> None:
    wait_until(
        lambda: state(elastic, job) in states,
        lambda: f"job {job} is {states}: {state(elastic, job)}, {elastic.states()}\n{elastic.said()}",
    )


def await_none(elastic: ElasticSandbox) -> None:
    wait_until(
        lambda: elastic.states() == NONE and not elastic.elastic_pods(),
        lambda: f"all nodes are off: {elastic.states()}, {elastic.elastic_pods().keys()}\n{elastic.said()}",
    )
