"""An elastic pool of hundreds of nodes: `elastic` beside slurmctld, a played API, and a slurmd for each pod of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Self

from config import load_config
from images.elastic.view import SETTINGS
from slurm.elastic import mark, settings
from tests.bench.scale.sandbox import ScaleSandbox, ask
from tests.fakes.kubernetes import Object
from tests.slurm.kubernetes import ENVIRONMENT, NAMESPACE, PODS
from tests.slurm.pod import Pod, wait_until

TEMPLATES = f"/api/v1/namespaces/{NAMESPACE}/podtemplates"
POOL = "default"
IDLE_SECONDS = 10
LOOK_SECONDS = 0.05
"""Between two looks of who starts the pods."""
START_SECONDS = 1.2
"""From a pod that is asked for to its slurmd, as on the local cluster: the pod's sandbox and its containers' starts."""


class PoolSandbox(ScaleSandbox):
    """All nodes are off until a job wants them."""

    def __init__(self, nodes: int) -> None:
        self._over = threading.Event()
        self._kubelets = threading.Thread(target=self._care_for_pods, name="kubelets")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.asked: list[float] = []
        """When the API was asked to make or end a pod."""
        self._seen: dict[str, float] = {}
        """Since when a pod is there."""
        self.started: list[float] = []
        """When a slurmd was started."""
        self.problem: BaseException | None = None
        """What has ended who starts the pods."""
        pool = {"worker_nodes.default.size": {"max": nodes}, "worker_nodes.default.idle_timeout": f"{IDLE_SECONDS}s"}
        super().__init__(nodes, pool)
        self._mark = mark(POOL, load_config(self.stack).worker_nodes[POOL])

    def __enter__(self) -> Self:
        super().__enter__()
        # A thousand nodes' programs after a job, in Python, take these cores for a minute; a node's own for 0.1 s.
        epilog = self.machine.root / "usr/libexec/slurmstack/health-epilog"
        epilog.unlink()
        epilog.symlink_to("/usr/bin/true")
        self._kubelets.start()
        return self

    def __exit__(self, *arguments: object) -> None:
        self._over.set()
        if self._kubelets.is_alive():
            self._kubelets.join()
        super().__exit__(*arguments)

    def place(self, pod: str, node: str) -> None:
        """No pod is there yet."""

    def start_controller_daemons(self, pod: Pod) -> None:
        """With `elastic`, which makes the records of all nodes."""
        super().start_controller_daemons(pod)
        assert self.api is not None
        self.api.before_change = lambda: self.asked.append(time.time())
        pool = load_config(self.stack).worker_nodes[POOL]
        labels = {"slurmstack/pool": POOL}
        metadata = {"labels": labels, "annotations": {SETTINGS: settings(POOL, pool)}}
        self._put(TEMPLATES, POOL, metadata=metadata, template={"metadata": {"labels": labels}, "spec": {}})
        pod.start_program("elastic", {**ENVIRONMENT, **pod.slurm_env})

    def worker_pods(self) -> dict[str, Object]:
        """Those that are there, by name."""
        assert self.api is not None
        with self.api.changed:
            return dict(self.api.collections.get(PODS, {}))

    def await_off(self, timeout: float) -> None:
        """Wait until no pod is there, and Slurm may start all nodes."""
        off = "sinfo --noheader --partition=main --states=powered_down --format=%D"

        def is_off() -> bool:
            assert self.problem is None, self.problem
            return not self.worker_pods() and ask(self, off).split() == [str(len(self.names))]

        wait_until(
            is_off, lambda: f"all are off: {ask(self, 'sinfo')}\n{self.controller.log('elastic')[-2000:]}", timeout
        )

    def _care_for_pods(self) -> None:
        """As scheduler and kubelets, all in one."""
        try:
            while not self._over.wait(LOOK_SECONDS):
                for name, pod in self.worker_pods().items():
                    self._care_for(name, pod)
        except BaseException as error:  # told by who waits for the pods
            self.problem = error
            raise

    def _care_for(self, name: str, pod: dict[str, Any]) -> None:
        assert self.api is not None
        if "deletionTimestamp" not in pod["metadata"]:
            since = self._seen.setdefault(name, time.monotonic())
            if name not in self._running and time.monotonic() - since > START_SECONDS:
                self.api.put(PODS, name, **{**pod, "spec": {**pod["spec"], "nodeName": "machine-0"}})
                self._running[name] = self.start_node(int(name.rpartition("-")[2]), self._mark)
                self.started.append(time.time())
            return
        slurmd = self._running.get(name)
        if slurmd is not None and slurmd.poll() is None:
            _terminate_inside(slurmd)
            return
        self._running.pop(name, None)
        self._seen.pop(name, None)
        self.api.remove(PODS, name)

    def _write_hosts(self) -> None:
        """With the Service of `elastic`."""
        super()._write_hosts()
        hosts = self.controller.root / "etc/hosts"
        hosts.write_text(f"{hosts.read_text()}{self._address('controller-0')} elastic\n")


def _terminate_inside(entered: subprocess.Popen[bytes]) -> None:
    """End what runs in a pod; who has entered it for that waits for it."""
    children = Path(f"/proc/{entered.pid}/task/{entered.pid}/children")
    for child in children.read_text().split() if children.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)
