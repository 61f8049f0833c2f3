"""Elastic pools on the real local Kubernetes: from no node to the job and back, whatever is killed meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl.client import Kubectl
from images.elastic.nodes import manifest, pool_of
from tests.e2e.asking_doctor import first
from tests.e2e.conftest import ENGINES, keep_state
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.stacks import dev, with_change

NAMESPACE = "e2e-elastic"
LABEL = "slurmstack-test/far"
TINY = {"cpus": 1, "memory": "768Mi", "cpu_request": "10m"}
POOLS = {
    "burst": {"size": {"max": 4}, "idle_timeout": "10s", "resume_timeout": "90s", "resources": TINY},
    # No machine has that label until a test puts it on one.
    "far": {
        "size": {"max": 2},
        "idle_timeout": "10s",
        "resume_timeout": "20s",
        "node_selector": {LABEL: "yes"},
        "resources": TINY,
    },
    "spot": {
        "size": {"min": 1, "max": 2},
        "idle_timeout": "10s",
        "resume_timeout": "90s",
        "preemptible": True,
        "resources": TINY,
    },
}
BURST = [f"burst-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def elastic(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    directory = tmp_path_factory.mktemp("elastic")
    sections = dev() | {
        "cluster": {"namespace": NAMESPACE},
        "login": {"size": 1},
        "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")]}},
        "worker_nodes": POOLS,
        "partitions": {name: {"pools": [name], "default": name == "burst"} for name in POOLS},
        "accounting": {"enabled": False},
    }
    sections = with_change(sections, "slurm.settings.MinJobAge", 86400)  # to know of each job how it has ended
    keep_state(ENGINES[-1], directory)
    slurm = SlurmOnKubernetes(engine=ENGINES[-1], directory=directory, sections=sections)
    try:
        slurm.up()
        await_off(slurm)
    except BaseException:
        print(f"logs: {slurm.collect_logs('setup-elastic')}")
        raise
    yield slurm
    slurmstack(
        "destroy", "--yes", "--kill-jobs", "--delete-data", "--engine", slurm.engine, "--config", str(slurm.file)
    )


def workers(slurm: SlurmOnKubernetes, pool: str = "burst") -> dict[str, str]:
    """Uids of the pods of a pool."""
    return {name: uid for name, uid in slurm.pod_uids().items() if name.startswith(f"{pool}-")}


def records(slurm: SlurmOnKubernetes) -> dict[str, set[str]]:
    """States of each node, without what says nothing of elastic pools."""
    lines = slurm.slurm("scontrol show nodes --all --oneliner", check=False).splitlines()
    found = {
        line.split()[0].partition("=")[2]: line.partition(" State=")[2].split()[0]
        for line in lines
        if " State=" in line
    }
    return {name: {*states.split("+")} - {"NOT_RESPONDING", "PLANNED"} for name, states in found.items()}


def await_off(slurm: SlurmOnKubernetes) -> None:
    """Wait until no node is up, and no pod is there, but of the pool that keeps one."""
    off = {"IDLE", "CLOUD", "DYNAMIC_NORM", "POWERED_DOWN"}

    def is_off() -> bool:
        found = records(slurm)
        return all(found.get(name) == off for name in BURST) and not workers(slurm) and not workers(slurm, "far")

    wait_until(is_off, lambda: f"all nodes are off: {records(slurm)}, {slurm.pod_uids()}")


def await_running(slurm: SlurmOnKubernetes, job: str) -> None:
    """Wait until a job runs, however often its nodes are lost before, but not for two minutes each time, as Slurm."""

    def is_running() -> bool:
        slurm.run_now(job)
        return slurm.job_state(job) == "RUNNING"

    wait_until(is_running, f"job {job} runs", slowest=1)


def test_one_job_gets_all_of_its_nodes_at_once_and_they_leave_when_they_are_idle(elastic: SlurmOnKubernetes) -> None:
    assert elastic.ssh("sinfo --noheader --format='%P %D %t'").splitlines()[0].split() == ["burst*", "4", "idle~"]
    job = elastic.submit("srun hostname", "--nodes=4", "--output=hosts")
    elastic.await_job(job, "COMPLETED")
    assert sorted(elastic.ssh("cat hosts").split()) == BURST
    assert sorted(workers(elastic)) == BURST
    await_off(elastic)


def test_a_pool_without_a_machine_pauses_and_runs_the_job_when_there_is_one(elastic: SlurmOnKubernetes) -> None:
    job = elastic.submit("true", "--partition=far", "--nodes=2")
    wait_until(
        lambda: "no capacity, 1 in vain" in elastic.slurm("sinfo --noheader --partition=far --format=%E"),
        "the pool pauses",
    )
    assert elastic.job_state(job) == "PENDING"
    assert first(elastic)["cause"].startswith("pool far lacks nodes: no capacity, 1 in vain")
    wait_until(lambda: not workers(elastic, "far"), "pods for which there is no machine go")
    elastic.kubectl.run("label", "node", "node-0", f"{LABEL}=yes", "--overwrite")
    try:

        def has_run() -> bool:
            elastic.run_now(job)
            return elastic.job_state(job) == "COMPLETED"

        wait_until(has_run, "the job runs")
    finally:
        elastic.kubectl.run("label", "node", "node-0", f"{LABEL}-")
    await_off(elastic)


def test_a_kept_node_is_warm_and_a_machine_that_is_taken_back_gives_its_job_back_at_once(
    elastic: SlurmOnKubernetes,
) -> None:
    """Notice is the eviction of the pod, by whatever program tells the cluster of it."""
    wait_until(lambda: "spot-0" in workers(elastic, "spot"), "a warm node")
    job = elastic.submit("sleep 300", "--partition=spot", "--requeue")
    elastic.await_job(job, "RUNNING")
    evicted = workers(elastic, "spot")["spot-0"]
    named = {"name": "spot-0", "namespace": elastic.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}
    path = f"/api/v1/namespaces/{elastic.namespace}/pods/spot-0/eviction"
    told = time.monotonic()
    elastic.kubectl.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    wait_until(lambda: elastic.job_state(job) == "PENDING", "the job is back in the queue", timeout=30)
    print(f"back in the queue {time.monotonic() - told:.1f} s after the notice")

    await_running(elastic, job)
    assert elastic.job_field(job, "Restarts") == "1"
    assert workers(elastic, "spot")[elastic.job_field(job, "NodeList")] != evicted
    elastic.slurm(f"scancel {job}")
    wait_until(lambda: evicted not in workers(elastic, "spot").values(), "the pod that was told to go has gone")


def container(**more: Any) -> Callable[[Any], Any]:
    return lambda pod: pod["spec"]["containers"][0].update(more)


def spec(**more: Any) -> Callable[[Any], Any]:
    return lambda pod: pod["spec"].update(more)


def labelled(labels: dict[str, str]) -> Callable[[Any], Any]:
    return lambda pod: pod["metadata"]["labels"].update(labels)


def metadata(**more: Any) -> Callable[[Any], Any]:
    return lambda pod: pod["metadata"].update(more)


def volume(**source: Any) -> Callable[[Any], Any]:
    return lambda pod: pod["spec"]["volumes"].append({"name": "more", **source})


def variable(name: str, **source: Any) -> Callable[[Any], Any]:
    return lambda pod: pod["spec"]["containers"][0]["env"].append({"name": name, **source})


def mounted(path: str) -> Callable[[Any], Any]:
    return lambda pod: pod["spec"]["containers"][0]["volumeMounts"].append({"name": "jail", "mountPath": path})


OF_DATABASE = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "database", "uid": "0"}

NO_POD_OF_THE_POOL: dict[str, Callable[[Any], Any]] = {
    "no label of a pool": lambda pod: pod["metadata"]["labels"].pop("slurmstack/pool"),
    "a pool that is none": labelled({"slurmstack/pool": "other"}),
    "another pool": labelled({"slurmstack/pool": "far"}),
    "another component": labelled({"app.kubernetes.io/component": "database"}),
    "another name": metadata(name="database-0"),
    "another owner": metadata(ownerReferences=[OF_DATABASE]),
    "a finalizer": metadata(finalizers=["example.com/never"]),
    "another host": spec(hostname="controller-0"),
    "another account": spec(serviceAccountName="controller"),
    "an account's token": spec(automountServiceAccountToken=True),
    "another Secret": volume(secret={"secretName": "slurmstack-generated"}),
    "all of a token's": volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
    "another claim": volume(persistentVolumeClaim={"claimName": "controller-state"}),
    "the machine's disk": volume(hostPath={"path": "/"}),
    "the jail in place of programs": mounted("/usr/libexec/slurmstack"),
    "the machine's processes": spec(hostPID=True),
    "the machine's network": spec(hostNetwork=True),
    "users of its own": spec(hostUsers=False),
    "one room for all processes": spec(shareProcessNamespace=True),
    "a device by name": spec(resourceClaims=[{"name": "gpu", "resourceClaimName": "other"}]),
    "another controller": spec(hostAliases=[{"ip": "192.0.2.1", "hostnames": ["controller-0"]}]),
    "a port of the machine": container(ports=[{"containerPort": 6818, "hostPort": 6818}]),
    "a machine by name": spec(nodeName="node-0"),
    "another name server": spec(dnsConfig={"nameservers": ["192.0.2.1"]}),
    "a class of Kubernetes' own": spec(priorityClassName="system-node-critical"),
    "another image": container(image="registry.example/shell:1"),
    "another command": container(command=["sleep", "1000"]),
    "more arguments": container(args=["--more"]),
    "another folder": container(workingDir="/jail"),
    "another probe": container(readinessProbe={"exec": {"command": ["sh", "-c", "id"]}}),
    "a probe of its life": container(livenessProbe={"exec": {"command": ["id"]}}),
    "a probe of its start": container(startupProbe={"exec": {"command": ["id"]}}),
    "another hook": container(lifecycle={"postStart": {"exec": {"command": ["id"]}}}),
    "another variable": variable("LD_PRELOAD", value="/jail/home/alice/evil.so"),
    "a variable from a Secret": variable("KEY", valueFrom={"secretKeyRef": {"name": "munge-key", "key": "munge.key"}}),
    "all variables from a Secret": container(envFrom=[{"secretRef": {"name": "munge-key"}}]),
    "all rights": container(securityContext={"privileged": True}),
    "a right": lambda pod: pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"].append("SYS_PTRACE"),
    "no seccomp": spec(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "another container": lambda pod: pod["spec"]["containers"].append({"name": "shell", "image": "shell"}),
    "another container before": lambda pod: pod["spec"]["initContainers"].append({"name": "shell", "image": "shell"}),
}
"""What is done to the right pod of a pool."""


def as_elastic(slurm: SlurmOnKubernetes, directory: Path) -> Kubectl:
    """kubectl with the token of `elastic` and nothing else."""
    ours = json.loads(slurm.kubectl.run("config", "view", "--raw", "--minify", "-o", "json").stdout)
    token = slurm.kubectl.run("create", "token", "elastic", "-n", slurm.namespace).stdout.strip()
    ours["users"][0]["user"] = {"token": token}
    file = directory / "kubeconfig"
    file.write_text(json.dumps(ours), encoding="utf-8")
    return Kubectl(program=slurm.kubectl.program, context=ours["current-context"], kubeconfig=str(file))


def test_its_token_makes_the_pools_pods_alone_and_ends_workers_alone(
    elastic: SlurmOnKubernetes, tmp_path: Path
) -> None:
    kubectl, here = as_elastic(elastic, tmp_path), ("-n", elastic.namespace)
    (template,) = elastic.kubectl.items("podtemplate", "burst", *here)
    pool = pool_of(template)
    assert pool is not None
    right = dict(manifest(pool, "burst-99"))

    def refusal(who: Kubectl, pod: Any) -> str:
        """Why the API server does not take it; nothing is made."""
        made = who.run("create", "--dry-run=server", "-f", "-", *here, stdin=json.dumps(pod), check=False)
        return "" if made.returncode == 0 else made.stderr

    assert not refusal(kubectl, right)
    taken, hit = [], {}
    for what, change in NO_POD_OF_THE_POOL.items():
        pod = deepcopy(right)
        change(pod)
        if "ValidatingAdmissionPolicy" not in refusal(kubectl, pod):
            taken.append(what)
        if why := refusal(elastic.kubectl, pod):
            hit[what] = why
    assert not taken
    assert not hit, "others may make such pods"
    worker = min(workers(elastic, "spot"))
    done = kubectl.run("delete", "pod", worker, "--dry-run=server", *here, check=False)
    assert done.returncode == 0, done.stderr
    done = kubectl.run("delete", "pod", "controller-0", "--dry-run=server", *here, check=False)
    assert "ValidatingAdmissionPolicy" in done.stderr


def lose(slurm: SlurmOnKubernetes, pod: str) -> None:
    """All of it ends within a second. By force it would run on for a while beside the next pod of its name."""
    how = ("--grace-period=1", "--wait=false", "--ignore-not-found")
    slurm.kubectl.run("delete", "pod", pod, "-n", slurm.namespace, *how)


def kill_slurmctld(slurm: SlurmOnKubernetes) -> None:
    find = "for pid in /proc/[0-9]*; do [ $(cat $pid/comm) != slurmctld ] || kill -KILL ${pid#/proc/}; done"
    slurm.slurm(find, check=False)


def kill_elastic(slurm: SlurmOnKubernetes) -> None:
    slurm.kubectl.run("delete", "pod", "-n", slurm.namespace, "-l", "app.kubernetes.io/component=elastic")


def test_what_is_killed_while_nodes_come_run_and_go_costs_no_job(elastic: SlurmOnKubernetes) -> None:
    """Each at another moment; in any order: tests/slurm/test_elastic_events.py."""
    script = "until [ -e go ]; do sleep 0.5; done; echo done >> ran-$SLURM_JOB_ID"
    job = elastic.submit(script, "--nodes=2", "--requeue")
    wait_until(lambda: len(workers(elastic)) == 2, "pods are made")
    lose(elastic, "burst-0")
    kill_elastic(elastic)

    await_running(elastic, job)
    # slurmctld saves what is done to jobs, but not by itself that a job's nodes have come.
    elastic.slurm(f"scontrol update jobid={job} comment=runs")
    elastic.await_saved()
    kill_slurmctld(elastic)
    await_running(elastic, job)
    lose(elastic, "burst-0")
    wait_until(lambda: elastic.job_state(job) == "PENDING", "the job is back in the queue")
    await_running(elastic, job)
    elastic.ssh("touch go")
    elastic.await_job(job, "COMPLETED")
    wait_until(lambda: any("POWERING_DOWN" in states for states in records(elastic).values()), "the nodes go")
    lose(elastic, "burst-1")  # at once: it is ending, and a save of slurmctld's may take longer than that
    elastic.await_saved()
    kill_slurmctld(elastic)
    await_off(elastic)
    elastic.await_job(elastic.submit("true", "--nodes=4"), "COMPLETED")
    assert elastic.ssh(f"cat ran-{job}").split() == ["done"]


def test_a_pool_becomes_fixed_and_elastic_again_while_a_job_runs(elastic: SlurmOnKubernetes) -> None:
    job = elastic.submit("sleep 45", "--nodes=1")
    elastic.await_job(job, "RUNNING")
    # Of both pools, so that Slurm saves no power any more: `elastic` is gone.
    elastic.sections = with_change(elastic.sections, "partitions", {"burst": {"pools": ["burst"]}})
    elastic.change("worker_nodes", {"burst": {"size": 2, "resources": TINY}})
    elastic.await_job(job, "COMPLETED")
    assert elastic.job_field(job, "Restarts") == "0"
    fixed = {"IDLE", "DYNAMIC_NORM"}
    wait_until(
        lambda: (
            {name: found for name, found in records(elastic).items() if name.startswith("burst-")}
            == {"burst-0": fixed, "burst-1": fixed}
        ),
        lambda: f"two fixed nodes: {records(elastic)}",
    )
    job = elastic.submit("sleep 30", "--nodelist=burst-1")
    elastic.await_job(job, "RUNNING")
    elastic.change("worker_nodes", {"burst": POOLS["burst"]})
    elastic.await_job(job, "COMPLETED")
    assert elastic.job_field(job, "Restarts") == "0"
    await_off(elastic)
    elastic.await_job(elastic.submit("true", "--nodes=4"), "COMPLETED")
    await_off(elastic)
