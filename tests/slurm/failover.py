"""Two controllers in a sandbox: one address that leads to the active one, as a Service does, and a Kubernetes API."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.controller.lease import ACTIVE, PODS
from tests.fakes.kubernetes import FakeKubernetes
from tests.slurm.kubernetes import CONFIG_MAPS, NAMESPACE, PORT, give_account, start_api
from tests.slurm.kubernetes import PODS as PODS_PATH
from tests.slurm.pod import HANG_SECONDS, Pod, wait_until
from tests.slurm.sandbox import NETWORK, SlurmSandbox

SERVICE = f"{NETWORK}.200.1"
"""Address of controller-0 for all others."""

CLIENT = "login-0"

SETTINGS = "MessageTimeout=10\nBatchStartTimeout=5\nAuthInfo=cred_expire=30\n"
"""Lines of slurm.conf with which less is waited for. What was about to begin when its controller was killed is queued
again, and waits until its credential is of no use any more: two minutes if nothing is said.
"""


class FailoverSandbox(SlurmSandbox):
    """A login node, two controllers and a worker. The bridge is the login node's, which nobody kills."""

    def __init__(self, version: str = "24.11", *, config: Mapping[str, str], **more: Any) -> None:
        self.api: FakeKubernetes | None = None
        self._leads_to = ""
        self._moving = threading.Thread(target=self._move_for_ever, daemon=True)
        self._is_over = threading.Event()
        super().__init__(version, config=config, **more)

    def start_controller(self, *, daemons: bool = True) -> Pod:
        del daemons
        client = self.add_pod(CLIENT, "login")
        self.api, self._authority = start_api(self.work, client, self._address(CLIENT))
        files = {path.name: path.read_text() for path in self.config_directory.iterdir()}
        self.api.put(CONFIG_MAPS, "slurm-config", data=files)
        self._moving.start()
        for name in PODS:
            self.start_one(name)
        client.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
        wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, self.logs)
        return self.active

    def start_one(self, name: str) -> Pod:
        """A controller pod: munged, config-agent and the supervisor."""
        assert self.api is not None
        self.api.put(PODS_PATH, name, metadata={"labels": {}})
        spool = self.work / f"spool-{name}"
        spool.mkdir(exist_ok=True)
        pod = self.add_pod(
            name, "controller",
            {
                self.config_directory: "/config/slurm", self.volume_of(name): "/var/lib/slurmstack/state",
                spool: "/var/spool", self.jwt_secret: "/secrets/jwt",
            },
        )  # fmt: skip
        give_account(pod, self._authority)
        pod.start_program("config-agent", self._env(name))
        self.start_supervisor(pod)
        return pod

    def volume_of(self, _: str) -> Path:
        """The state volume as a pod's machine has it."""
        return self.state

    def start_supervisor(self, pod: Pod) -> None:
        """As kubelet starts a container again, too."""
        pod.start_program("supervisor", self._env(pod.name), container="slurmctld")

    def _env(self, name: str) -> dict[str, str]:
        return {
            "KUBERNETES_SERVICE_HOST": self._address(CLIENT), "KUBERNETES_SERVICE_PORT": str(PORT),
            "NAMESPACE": NAMESPACE, "POD_UID": name, "SLURMSTACK_HOST": "controller-0",
        }  # fmt: skip

    def run(
        self, command: Sequence[str] | str, *, pod: str = CLIENT, timeout: float = HANG_SECONDS,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        return super().run(command, pod=pod, timeout=timeout, env=env)

    @property
    def active(self) -> Pod:
        """The pod that the Service leads to."""
        return self.pods[self._leads_to]

    @property
    def other(self) -> Pod:
        return next(self.pods[name] for name in PODS if name != self._leads_to)

    def stands_by(self) -> bool:
        """Whether the other one does, since it was active for the last time."""
        since = self.other.log("supervisor").rpartition("active: term")[2]
        return "standing by" in since or "no longer active" in since

    def processes_of(self, pod: Pod) -> list[int]:
        """All processes of a pod's containers, from outside; not the one that holds the pod."""
        own = Path(f"/proc/{pod.pid}/ns/pid").readlink()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(path.name) != pod.pid and (path / "ns/pid").readlink() == own:
                    found.append(int(path.name))
        return found

    def stop_supervisors(self) -> None:
        """As when there are to be no controllers: the one that stands by first."""
        for pod in (self.other, self.active):
            pod.run("pkill -TERM -f libexec/slurmstack/supervisor")
            wait_until(lambda pod=pod: not self.runs("supervisor", pod), self.logs)  # type: ignore[misc]

    def runs(self, program: str, pod: Pod) -> bool:
        return pod.run(["pgrep", "-f", f"(libexec/slurmstack|sbin)/{program}"]).returncode == 0

    def signal_all(self, pod: Pod, number: signal.Signals) -> None:
        """To all of a pod's processes, those that they start meanwhile included."""
        for _ in range(3):
            for pid in self.processes_of(pod):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        if number == signal.SIGCONT:
            for process in pod.processes:  # nsenter stops with its child
                process.send_signal(number)

    def _write_hosts(self) -> None:
        names = {name: self._address(name) for name in self.pods if name not in PODS}
        lines = ["127.0.0.1 localhost", f"{SERVICE} controller-0", *(f"{at} {name}" for name, at in names.items())]
        for pod in self.pods.values():
            (pod.root / "etc/hosts").write_text("\n".join(lines) + "\n")
            (pod.root / "etc/resolv.conf").write_text("")
        if self._leads_to:
            self._route(self._leads_to)

    def _move_for_ever(self) -> None:
        """As the cluster's controllers and its network do: the address follows the label."""
        while not self._is_over.wait(0.05):
            assert self.api is not None
            with self.api.changed:
                pods = dict(self.api.collections.get(PODS_PATH, {}))
            wanted = [name for name, item in pods.items() if item["metadata"].get("labels", {}).get(ACTIVE) == "yes"]
            if len(wanted) == 1 and wanted[0] != self._leads_to and wanted[0] in self.pods:
                self._route(wanted[0])
                self._leads_to = wanted[0]

    def _route(self, target: str) -> None:
        ip = ["nsenter", f"--target={self.pods[target].pid}", "--net"]
        shown = subprocess.run([*ip, "ip", "-o", "link", "show", "eth0"], capture_output=True, text=True, check=True)
        mac = shown.stdout.partition("link/ether ")[2].split()[0]
        for name, pod in list(self.pods.items()):
            inside = ["nsenter", f"--target={pod.pid}", "--net", "ip"]
            device = "br0" if name == CLIENT else "eth0"
            if name == target:
                calls = [["neigh", "del", SERVICE, "dev", device], ["addr", "replace", f"{SERVICE}/32", "dev", device]]
            else:
                hard = ["lladdr", mac, "dev", device, "nud", "permanent"]
                calls = [["addr", "del", f"{SERVICE}/32", "dev", device], ["neigh", "replace", SERVICE, *hard]]
            for call in calls:
                subprocess.run([*inside, *call], capture_output=True, check=False)

    def __exit__(self, *arguments: object) -> None:
        self._is_over.set()
        if self.api is not None:
            self.api.close()
        super().__exit__(*arguments)


def came_back(cluster: FailoverSandbox, pod: Pod) -> None:
    """A pod that was killed is made anew, as by its StatefulSet."""
    cluster.remove_pod(pod.name)
    cluster.start_one(pod.name)


def make_whole(cluster: FailoverSandbox) -> None:
    """Whatever a test has ended, also one that failed midway, runs again for the next one."""
    for pod in [cluster.pods[name] for name in PODS]:
        if not cluster.runs("supervisor", pod):
            came_back(cluster, pod)


BEGAN, RAN = "/tmp/began", "/tmp/ran"
"""Ids of jobs that have begun, and that have ended."""

JOB = f"""\
id=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
echo $id >>{BEGAN}; test $((SLURM_JOB_ID % 20)) -gt 0 || sleep 2; echo $id >>{RAN}"""
"""Most jobs take no time; one of twenty runs for a while, so that what becomes of a controller becomes of its job."""


@dataclass
class Stream:
    """Submissions, one after the other, for as long as the block lasts. Each job leaves its id in a file."""

    cluster: FailoverSandbox
    tasks: int = 1
    """Jobs of each submission; several are an array."""
    most: int | None = None
    """With so many jobs that have not run yet nothing more is submitted."""
    accepted: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Id -> when its submission began, and when sbatch had printed the id."""
    refused: list[str] = field(default_factory=list)
    released: set[str] = field(default_factory=set)
    """What Slurm had queued again and held."""
    _is_over: threading.Event = field(default_factory=threading.Event)

    def _submit(self) -> None:
        array = f"--array=1-{self.tasks} " if self.tasks > 1 else ""
        # A command that was asking a controller that was paused waits for MessageTimeout; another one need not.
        command = f"timeout 2 sbatch --parsable {array}--output=/dev/null --wrap '{JOB}'"
        while not self._is_over.is_set():
            if self.most is None or len(self.accepted) - len(self.ran()) < self.most:
                began = time.monotonic()
                done = self.cluster.run(command)
                if done.returncode == 0:
                    self._accept(done.stdout.strip(), began)
                else:
                    self.refused.append(done.stderr.strip())
            time.sleep(0.1)

    def _accept(self, job: str, began: float) -> None:
        jobs = [f"{job}_{task}" for task in range(1, self.tasks + 1)] if self.tasks > 1 else [job]
        self.accepted.update(dict.fromkeys(jobs, (began, time.monotonic())))

    @contextlib.contextmanager
    def running(self, at_once: int = 3) -> Iterator[None]:
        threads = [threading.Thread(target=self._submit) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def accepted_since(self, moment: float, timeout: float = HANG_SECONDS) -> float:
        """Wait for an answer to a submission that began after a moment; the seconds from there to the answer."""

        def answers() -> list[float]:
            return [answered for began, answered in list(self.accepted.values()) if began > moment]

        wait_until(lambda: bool(answers()), self.cluster.logs, timeout)
        return min(answers()) - moment

    def go_on(self, count: int = 10) -> None:
        """Wait until so many more jobs are accepted."""
        wanted = len(self.accepted) + count
        wait_until(lambda: len(self.accepted) >= wanted, self.cluster.logs)

    def ran(self) -> list[str]:
        return self._written(RAN)

    def _written(self, path: str) -> list[str]:
        workers = [pod for name, pod in list(self.cluster.pods.items()) if name.startswith("default-")]
        files = [pod.root / path.lstrip("/") for pod in workers]
        return [job for file in files if file.exists() for job in file.read_text().split()]

    def settle(self, timeout: float = HANG_SECONDS) -> None:
        """Wait until the queue is empty."""

        def is_empty() -> bool:
            self.release()
            queue = self.cluster.run("squeue --noheader")
            return queue.returncode == 0 and not queue.stdout

        wait_until(is_empty, lambda: f"{self.look()}\n{self.cluster.logs()}", timeout)

    def check(self) -> None:
        """Each accepted job has run, and once."""
        self.settle()
        assert not (lost := self.lost()), f"{lost}\n{self.look()}\n{self.cluster.logs()}"
        assert not (twice := self.twice()), f"{twice}\n{self.cluster.logs()}"
        assert len(self.accepted) > 5

    def release(self) -> None:
        """Of Slurm's own: what it was about to send to a node when it was killed, it queues again and holds."""
        lines = self.cluster.run("squeue --noheader --array --states=PD --format='%i %r'").stdout.splitlines()
        if held := [line.split()[0] for line in lines if "launch failed requeued held" in line]:
            self.released.update(held)
            self.cluster.run(f"scontrol release {','.join(held)}")

    def lost(self) -> set[str]:
        """Accepted, and never ended; to be asked when the queue is empty."""
        return set(self.accepted) - set(self.ran())

    def twice(self) -> set[str]:
        """Begun more than once."""
        return {job for job, times in Counter(self._written(BEGAN)).items() if times > 1}

    def look(self) -> str:
        return self.cluster.run("squeue --states=all; scontrol show nodes").stdout
