"""The client of the Kubernetes API, against a server that answers like one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common.kubernetes import Kube
from images.controller.configuration import Changes, first_files, follow_config_map
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


@pytest.fixture
def changes(request: pytest.FixtureRequest, api: FakeKubernetes, kube: Kube) -> Changes:
    """Of the ConfigMap that is followed, once what it has at first was read; `request`: attributes of the server."""
    for name, value in getattr(request, "param", {}).items():
        setattr(api, name, value)
    changes = Changes()
    follow_config_map(kube, "slurm-config", changes, lambda _: None).start()
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}
    return changes


def test_a_list_of_several_pages_is_whole(api: FakeKubernetes, kube: Kube) -> None:
    for number in range(5):
        api.put(PODS, f"pod-{number}")
    api.page = 2

    assert [pod["metadata"]["name"] for pod in kube.list_pods()] == [f"pod-{number}" for number in range(5)]
    assert len(api.questions) == 3


def test_a_pod_is_deleted_and_never_a_later_one_of_its_name(api: FakeKubernetes, kube: Kube) -> None:
    api.put(PODS, "pod-0")
    (pod,) = kube.list_pods()
    kube.delete_pod("pod-0", "the uid of the one before", force=True)
    assert kube.list_pods() == [pod]
    for _ in range(2):  # what is gone already is no failure
        kube.delete_pod("pod-0", pod["metadata"]["uid"])
    assert kube.list_pods() == []


def test_a_watch_notices_when_the_other_end_is_lost(api: FakeKubernetes, kube: Kube) -> None:
    """Else its copy would be minutes old. Nobody tells it: the kernel has to ask (timer 02 of proc_net_tcp.rst)."""
    version = kube.list_all(CONFIG_MAPS)[1]
    watch = kube.watch(CONFIG_MAPS, version)
    next(watch)
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    timers = [line[5][:2] for line in lines if line[2].endswith(f":{api.port:04X}") and line[3] == "01"]
    assert timers == ["02"]
    watch.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="as usual"),
        # It has come far since the change, and remembers only the last part.
        pytest.param({"version": 900, "forgotten": 800}, id="one that has not changed for long"),
    ],
    indirect=True,
)
def test_a_change_arrives_at_once(api: FakeKubernetes, changes: Changes) -> None:
    change(api, "a\n")  # an event without a change of the files is none
    change(api, "b\n")
    assert changes.get(timeout=5) == {"slurm.conf": "b\n"}
    if api.version >= 900:
        assert len(api.questions) == 2, "it was read once, and watched once"


def test_a_watch_that_breaks_is_started_again_and_misses_nothing(api: FakeKubernetes, changes: Changes) -> None:
    with api.changed:
        api.end_watches()
        change(api, "while away\n")
    assert changes.get(timeout=5) == {"slurm.conf": "while away\n"}


def test_without_the_api_the_mounted_copy_serves_at_boot(api: FakeKubernetes, kube: Kube, tmp_path: Path) -> None:
    api.refuses = {"configmaps": 403}
    (tmp_path / "slurm.conf").write_text("mounted\n")
    changes = Changes()
    follow_config_map(kube, "slurm-config", changes, lambda _: None).start()

    assert first_files(changes, lambda _: None, tmp_path, patience=0.1)["slurm.conf"] == "mounted\n"

    api.refuses = {}
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}, "and the API server's as soon as there are some"
