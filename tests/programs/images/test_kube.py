"""The client of the Kubernetes API, against a server that answers like one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common.kubernetes import Kube, KubeError
from images.controller.configuration import Changes, first_files, follow_config_map, follow_mounted
from tests.fakes.commands import FakeClock
from tests.fakes.kubernetes import FakeKubernetes

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
PODS = "/api/v1/namespaces/ns/pods"


def change(api: FakeKubernetes, content: str) -> None:
    """What the ConfigMap contains from now on."""
    api.put(CONFIG_MAPS, "slurm-config", data={"slurm.conf": content})


@pytest.fixture
def api() -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    change(fake, "a\n")
    yield fake
    fake.close()


@pytest.fixture
def kube(api: FakeKubernetes, tmp_path: Path) -> Kube:
    (tmp_path / "token").write_text("secret-token\n")
    return Kube(host="127.0.0.1", port=api.port, namespace="ns", tls=False, service_account=tmp_path)


def follow(kube: Kube) -> Changes:
    changes = Changes()
    follow_config_map(kube, "slurm-config", changes, lambda _: None).start()
    return changes


def test_the_token_is_sent(api: FakeKubernetes, kube: Kube) -> None:
    kube.list_pods()

    assert {question.token for question in api.questions} == {"Bearer secret-token"}


def test_a_list_of_several_pages_is_whole(api: FakeKubernetes, kube: Kube) -> None:
    for number in range(5):
        api.put(PODS, f"pod-{number}")
    api.page = 2

    assert [pod["metadata"]["name"] for pod in kube.list_pods()] == [f"pod-{number}" for number in range(5)]
    assert len(api.questions) == 3


def test_an_error_of_the_server_tells_its_message(api: FakeKubernetes, kube: Kube) -> None:
    api.refuses = {"configmaps": 403}

    with pytest.raises(KubeError, match="403 configmaps is forbidden"):
        kube.list_all(CONFIG_MAPS)


def test_no_server_is_a_kube_error(tmp_path: Path) -> None:
    with pytest.raises(KubeError):
        Kube(host="127.0.0.1", port=9, namespace="ns", tls=False, service_account=tmp_path).list_pods()


def test_outside_of_a_pod_there_is_no_api() -> None:
    assert Kube.in_cluster("ns", {}) is None
    found = Kube.in_cluster("ns", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert found is not None
    assert (found.host, found.port, found.tls) == ("10.0.0.1", 6443, True)


def test_a_change_arrives_at_once_and_an_event_without_one_is_none(api: FakeKubernetes, kube: Kube) -> None:
    changes = follow(kube)
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}
    change(api, "a\n")
    change(api, "c\n")

    assert changes.get(timeout=5) == {"slurm.conf": "c\n"}


def test_a_forgotten_resource_version_is_read_again(api: FakeKubernetes, kube: Kube) -> None:
    api.expired_watches = 2
    changes = follow(kube)
    changes.get(timeout=5)

    change(api, "d\n")

    assert changes.get(timeout=5) == {"slurm.conf": "d\n"}


def test_one_that_has_not_changed_for_long_is_watched_all_the_same(api: FakeKubernetes, kube: Kube) -> None:
    api.version, api.forgotten = 900, 800  # it has come far since the change, and remembers only the last part
    changes = follow(kube)
    changes.get(timeout=5)

    change(api, "d\n")

    assert changes.get(timeout=5) == {"slurm.conf": "d\n"}
    assert len(api.questions) == 2, "it was read once, and watched once"


def test_a_watch_that_breaks_is_started_again_and_misses_nothing(api: FakeKubernetes, kube: Kube) -> None:
    changes = follow(kube)
    changes.get(timeout=5)
    with api.changed:
        api.end_watches()
        change(api, "while away\n")

    assert changes.get(timeout=5) == {"slurm.conf": "while away\n"}


def test_a_deleted_config_map_changes_nothing(api: FakeKubernetes, kube: Kube) -> None:
    changes = follow(kube)
    changes.get(timeout=5)
    api.remove(CONFIG_MAPS, "slurm-config")
    change(api, "again\n")

    assert changes.get(timeout=5) == {"slurm.conf": "again\n"}


def test_without_the_api_the_mounted_copy_serves_at_boot(api: FakeKubernetes, kube: Kube, tmp_path: Path) -> None:
    api.refuses = {"configmaps": 403}
    (tmp_path / "slurm.conf").write_text("mounted\n")
    changes = follow(kube)

    assert first_files(changes, lambda _: None, tmp_path, patience=0.1)["slurm.conf"] == "mounted\n"

    api.refuses = {}
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}, "and the API server's as soon as there are some"


def test_mounted_files_are_offered_once_per_change(tmp_path: Path) -> None:
    changes, clock, log = Changes(), FakeClock(), list[str]()
    contents = iter(["1", "1", "2"])

    def later() -> None:
        (tmp_path / "slurm.conf").write_text(next(contents))  # and then it is enough

    clock.on_sleep = later
    with pytest.raises(StopIteration):
        follow_mounted(changes, log.append, tmp_path, clock)

    assert "waiting for" in log[0]
    assert [changes.get_nowait()["slurm.conf"] for _ in range(changes.qsize())] == ["1", "2"]
