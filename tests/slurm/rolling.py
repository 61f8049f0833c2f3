"""A sandbox with a pool of a StatefulSet: `elastic` beside slurmctld, and who makes and runs the pods."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from images.elastic.view import MAX_UNAVAILABLE
from tests.slurm.elastic import ElasticSandbox
from tests.slurm.kubernetes import ENVIRONMENT, NAMESPACE, PODS

SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
REVISION = "controller-revision-hash"
BAD = "bad"
"""A template whose pods never become ready."""


class RollingSandbox(ElasticSandbox):
    """Nodes `cpu-0`, ... of a StatefulSet that replaces no pod by itself."""

    def __init__(self, version: str, *, config: Mapping[str, str], size: int = 4, **more: Any) -> None:
        self.size, self.revision = size, "first"
        self._maker = threading.Thread(target=self._make_pods)
        super().__init__(version, config=config, **more)

    def start_elastic(self) -> None:
        self.controller.start_program("elastic", {**ENVIRONMENT, **self.controller.slurm_env, "POOLS": "none"})
        if not self._maker.is_alive():
            self._maker.start()

    def set_pool(self, **changes: Any) -> None:
        """Apply another template (`revision`)."""
        self.revision = changes.get("revision", self.revision)
        metadata = {
            "labels": {"slurmstack/pool": "cpu"}, "annotations": {MAX_UNAVAILABLE: "1"}, "generation": 1,
        }  # fmt: skip
        spec = {"replicas": self.size, "updateStrategy": {"type": "OnDelete"}}
        status = {"observedGeneration": 1, "updateRevision": self.revision}
        self._put(SETS, "cpu", metadata=metadata, spec=spec, status=status)

    def worker_env(self) -> dict[str, str]:
        return {"NODE_CONF": "CPUs=2 RealMemory=1000 Feature=cpu", "POOL": "cpu"}

    def elastic_pods(self) -> dict[str, dict[str, Any]]:
        """All but those that will never run."""
        return {name: pod for name, pod in self.all_pods().items() if self.revision_of(pod) != BAD or _leaves(pod)}

    def all_pods(self) -> dict[str, dict[str, Any]]:
        assert self.api is not None
        with self.api.changed:
            return dict(self.api.collections.get(PODS, {}))

    @staticmethod
    def revision_of(pod: Mapping[str, Any]) -> str:
        return str(pod["metadata"].get("labels", {}).get(REVISION))

    def revisions(self) -> list[str]:
        """Of the pods that are there and do not leave."""
        return sorted(self.revision_of(pod) for pod in self.all_pods().values() if not _leaves(pod))

    def _make_pods(self) -> None:
        """As the controller of StatefulSets, and kubelet's probe of readiness."""
        assert self.api is not None
        while not self._over.wait(0.1):
            there = self.all_pods()
            for name in (f"cpu-{number}" for number in range(self.size)):
                if name not in there:
                    labels = {"slurmstack/pool": "cpu", REVISION: self.revision}
                    self.api.put(PODS, name, metadata={"labels": labels}, spec={"containers": []})
            for name, pod in there.items():
                if name in self.pods and not pod.get("status") and self._has_configuration(name):
                    with self._lock:
                        if (now := self.all_pods().get(name)) is not None and not _leaves(now):
                            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
                            self.api.put(PODS, name, **{**now, "status": ready})

    def _has_configuration(self, name: str) -> bool:
        """As the readiness probe asks."""
        try:
            return self.run("test -e /run/slurm/conf/slurm.conf", pod=name).returncode == 0
        except KeyError:  # it is gone meanwhile
            return False

    def __exit__(self, *arguments: object) -> None:
        self._over.set()
        if self._maker.is_alive():
            self._maker.join()
        super().__exit__(*arguments)


def _leaves(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
