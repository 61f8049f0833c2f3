"""The label of the active one of two controllers, against a server that answers like Kubernetes' API."""

from __future__ import annotations

import threading
from pathlib import Path

from images.common.kubernetes import Kube
from images.controller.epochs import RENEWED, Candidate
from images.controller.standby import ACTIVE, PODS, lead_here
from tests.fakes.kubernetes import FakeKubernetes
from tests.programs.waiting import wait_until

COLLECTION = "/api/v1/namespaces/ns/pods"


def test_the_service_leads_to_who_has_the_epoch_once_the_api_server_answers(tmp_path: Path) -> None:
    api = FakeKubernetes()
    for pod, labels in zip(PODS, ({ACTIVE: "yes", "a": "b"}, {}), strict=True):
        api.put(COLLECTION, pod, metadata={"labels": labels})
    (tmp_path / "term-7").mkdir()
    (tmp_path / "term-7" / RENEWED).write_text("7 released")
    epoch = Candidate(tmp_path, f"{PODS[1]}/a", is_first=False).look()
    assert epoch is not None
    kube = Kube(host="127.0.0.1", port=api.port, namespace="ns", tls=False, service_account=tmp_path)
    said: list[str] = []
    api.down = True
    thread = threading.Thread(target=lead_here, args=(kube, PODS[1], epoch, said.append))
    thread.start()
    wait_until(lambda: bool(said))
    api.down = False

    def labels_of(pod: str) -> dict[str, str]:
        found: dict[str, str] = api.collections[COLLECTION][pod]["metadata"]["labels"]
        return found

    wait_until(lambda: labels_of(PODS[1]) == {ACTIVE: "yes"})
    assert labels_of(PODS[0]) == {"a": "b"}
    thread.join()  # the epoch is over: nobody renews it
    api.close()
