"""The client of the Kubernetes API, against a server that answers like one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from images.common.kubernetes import Kube
from images.controller.configuration import Changes, first_files, follow_config_map
from tests.fakes.kubernetes import FakeKubernetes

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"


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


def test_without_the_api_the_mounted_copy_serves_at_boot(api: FakeKubernetes, kube: Kube, tmp_path: Path) -> None:
    api.refuses = {"configmaps": 403}
    (tmp_path / "slurm.conf").write_text("mounted\n")
    changes = follow(kube)

    assert first_files(changes, lambda _: None, tmp_path, patience=0.1)["slurm.conf"] == "mounted\n"

    api.refuses = {}
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}, "and the API server's as soon as there are some"
