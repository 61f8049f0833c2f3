"""What may go wrong in a monitored cluster, made to go wrong. Each undoes it at its end."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from images.common.slurm_node import SET_ASIDE
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.small_volumes import Disk


@contextmanager
def nodes_drained_and_down(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """Of an elastic pool, whose nodes are off: three drained for one check, one set aside. Of a fixed one: one down.

    There are no such pools, and the configuration agent would delete these records, if they were not reserved.
    """
    like = "feature=default cpus=2 realmemory=1000"
    create = " && ".join(
        f"scontrol create nodename={nodes} state={state} {like}"
        for nodes, state in (("other-[0-2,4]", "cloud"), ("other-3", "future"))
    )
    down = "scontrol update nodename=other-3 state=down reason=broken"
    reserve = "scontrol create reservationname=others starttime=now duration=60 nodes=other-[0-4] users=root"
    slurm.slurm(f"{create} && {down} && {reserve}")
    health = "health/infiniband [hardware]: lost"
    for nodes, state, reason in (
        ("other-[0-2]", "drain", health),
        ("other-4", "drain", f"{SET_ASIDE} after 10 starts in vain"),
    ):
        slurm.slurm(f"scontrol update nodename={nodes} state={state} reason='{reason}'")
    try:
        yield
    finally:
        # Without it the agent deletes them, too, and may be the first.
        slurm.slurm("scontrol delete reservationname=others; scontrol delete nodename=other-[0-4]", check=False)


def requeue(slurm: SlurmOnKubernetes, times: int) -> str:
    """Submit a job, and give it back to the queue each time that it runs; its id."""
    job = slurm.submit("sleep 600", "--requeue")
    for _ in range(times):
        await_again(slurm, job)
        slurm.slurm(f"scontrol requeue {job}")
        # Within the same second slurmd takes the job that starts again for the one that it has just ended.
        time.sleep(2)
    return job


def await_again(slurm: SlurmOnKubernetes, job: str) -> None:
    """Wait until a job runs that was requeued, but not for two minutes each time, as Slurm would have it."""

    slurm.run_now(job)
    slurm.await_job(job, "RUNNING")


@contextmanager
def requeued_often(slurm: SlurmOnKubernetes) -> Iterator[None]:
    job = requeue(slurm, 5)
    await_again(slurm, job)
    slurm.slurm(f"scontrol requeuehold {job}")
    try:
        yield
    finally:
        slurm.slurm(f"scancel {job}")


@contextmanager
def stuck_queue(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """The first job runs on one node, the second waits for both, and with sched/builtin the third waits behind it."""
    jobs = [slurm.submit("sleep 900", "--exclusive", f"--nodes={nodes}") for nodes in (1, 2, 1)]
    try:
        yield
    finally:
        slurm.slurm(f"scancel {' '.join(jobs)}")


@contextmanager
def certificate_near_its_end(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """As if nobody had renewed it."""
    at = ("secret", "rest-tls", "-n", slurm.namespace)

    def put(certificate: str) -> None:
        patch = {"data": {"tls.crt": certificate}}
        slurm.kubectl.run("patch", *at, "--type=merge", f"--patch={json.dumps(patch)}")

    def tell_kubelet() -> None:
        """It renews a pod's files once a minute, or when the pod is changed."""
        of_exporter = ("pods", "-l", "app.kubernetes.io/component=exporter", "-n", slurm.namespace)
        slurm.kubectl.run("annotate", *of_exporter, "--overwrite", f"touched={datetime.now(UTC).timestamp()}")

    (secret,) = slurm.kubectl.items(*at)
    put(base64.b64encode(certificate_for(timedelta(days=5))).decode())
    tell_kubelet()
    try:
        yield
    finally:
        put(secret["data"]["tls.crt"])
        tell_kubelet()


def certificate_for(time_left: timedelta) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rest")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    signed = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + time_left).sign(key, SHA256())
    return signed.public_bytes(Encoding.PEM)


@contextmanager
def refused_configuration(slurm: SlurmOnKubernetes) -> Iterator[None]:
    before = slurm.sections
    assert slurm.change("slurm.settings.PriorityType", "priority/nonsense", check=False).returncode != 0
    try:
        yield
    finally:
        slurm.sections = before
        slurm.up()


@contextmanager
def refused_policy(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """A reservation of the stack file where somebody has made another one by hand."""
    before = slurm.sections
    # Not within a day, or jobs might not end before it begins.
    start = f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%dT08:00:00}"
    slurm.slurm(f"scontrol create reservationname=byhand starttime={start} duration=60 nodes=default-0 users=root")
    course = {"start": start, "duration": "60", "nodes": ["default-0"], "users": ["alice"]}
    assert slurm.change("reservations", {"course": course}, check=False).returncode != 0
    try:
        yield
    finally:
        slurm.slurm("scontrol delete reservationname=byhand")
        slurm.sections = before
        slurm.up()


KILL_PROLOG = """
import os, pathlib, signal, sys, time
until = time.monotonic() + 10
while time.monotonic() < until:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if b"health-prolog" in pathlib.Path("/proc", pid, "cmdline").read_bytes() and int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
                sys.exit()
        except OSError:
            pass
"""


@contextmanager
def failed_prolog(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """One that is killed, as for want of memory. Slurm drains the node, and starts the job on the other one."""
    node = "default-1"

    def is_drained() -> bool:
        """A prolog may have ended before it was seen: this machine has more to do."""
        thread = Thread(target=slurm.exec, args=(node, "python3", "-c", KILL_PROLOG), kwargs={"container": "slurmd"})
        thread.start()
        slurm.submit("true", f"--nodelist={node}")
        thread.join()
        time.sleep(2)  # slurmctld hears of it
        return "DRAIN" in slurm.nodes().get(node, frozenset())

    wait_until(is_drained, "a prolog was killed")
    try:
        yield
    finally:
        slurm.slurm(f"scancel --user=alice; scontrol update nodename={node} state=resume", check=False)


@contextmanager
def full(disk: Disk, share: float) -> Iterator[None]:
    disk.fill(share)
    try:
        yield
    finally:
        disk.empty()


@contextmanager
def claim_without_a_class(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """A volume claim of a storage class that is not there."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none-of-this-name",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "of-a-test"}, "spec": spec}
    slurm.kubectl.run("apply", "-n", slurm.namespace, "-f", "-", stdin=json.dumps(claim))
    try:
        yield
    finally:
        slurm.kubectl.run("delete", "pvc", "of-a-test", "-n", slurm.namespace)


@contextmanager
def suspended_backups(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """As a restore leaves them that was not finished."""
    for suspended in ("true", "false"):
        change = f'{{"spec": {{"suspend": {suspended}}}}}'
        slurm.kubectl.run("patch", "cronjob", "backup", "-n", slurm.namespace, "--type=merge", "-p", change)
        if suspended == "true":
            yield


@contextmanager
def unrehearsed_backups(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """As if the last rehearsal were forty days ago; and then as after one that ended well."""
    for days in (40, 0):
        moment = datetime.now(UTC) - timedelta(days=days)
        change = json.dumps({"status": {"lastSuccessfulTime": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}})
        at = ("cronjob", "backups", "-n", slurm.namespace)
        slurm.kubectl.run("patch", *at, "--subresource=status", "--type=merge", "-p", change)
        if days:
            yield


@contextmanager
def without(slurm: SlurmOnKubernetes, *workloads: str) -> Iterator[None]:
    """As if these had no pod that runs."""
    slurm.kubectl.run("scale", *workloads, "--replicas=0", "-n", slurm.namespace)
    try:
        yield
    finally:
        slurm.kubectl.run("scale", *workloads, "--replicas=1", "-n", slurm.namespace)


@contextmanager
def without_rights(slurm: SlurmOnKubernetes, component: str) -> Iterator[None]:
    """As if somebody had taken a component's rights in Kubernetes.

    A new pod takes its place before the old one goes, which might still follow what it has begun to.
    """
    at = ("rolebinding", component, "-n", slurm.namespace)
    (binding,) = slurm.kubectl.items(*at)

    def bind(subjects: list[object]) -> None:
        patch = json.dumps({"subjects": subjects})
        slurm.kubectl.run("patch", *at, "--type=merge", f"--patch={patch}")
        slurm.kubectl.run("rollout", "restart", f"deployment/{component}", "-n", slurm.namespace)
        slurm.kubectl.run("rollout", "status", f"deployment/{component}", "-n", slurm.namespace, "--timeout=60s")

    bind([])
    try:
        yield
    finally:
        bind(binding["subjects"])


@contextmanager
def restarting_container(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """One that ends at once, each time.

    Kubernetes waits 10, 20, 40 s and so on before it starts the same image once more, which would be minutes: so each
    time it is another image.
    """
    namespace = ("-n", slurm.namespace)
    containers = [container for pod in slurm.pods().values() for container in pod["spec"]["containers"]]
    images = sorted({container["image"] for container in containers if "slurmstack/" in container["image"]})[:8]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "of-a-test"},
        "spec": {
            "containers": [{"name": "ends", "image": images[0], "command": ["/bin/sh", "-c", "sleep 1; exit 1"]}],
            "terminationGracePeriodSeconds": 0,
        },
    }

    def after(restarts: int) -> bool:
        (found,) = slurm.kubectl.items("pod", "of-a-test", *namespace)
        return any(status["restartCount"] > restarts for status in found["status"].get("containerStatuses", ()))

    slurm.kubectl.run("apply", *namespace, "-f", "-", stdin=json.dumps(pod))
    try:
        for number, image in enumerate(images[1:]):
            wait_until(partial(after, number), f"restart {number + 1}")
            slurm.kubectl.run("set", "image", "pod/of-a-test", f"ends={image}", *namespace)
        yield
    finally:
        slurm.kubectl.run("delete", "pod", "of-a-test", *namespace)
