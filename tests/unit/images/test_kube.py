"""The client of the Kubernetes API, against a server that answers like one."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from images.controller.kube import Kube, KubeError
from images.controller.source import ConfigMapSource, MountedSource
from tests.unit.images.fakes import FakeClock


class FakeApi:
    """One ConfigMap with a watch, and a list in pages."""

    def __init__(self) -> None:  # noqa: C901 - one branch per request
        self.version = 5
        self.changed = 5
        self.data = {"slurm.conf": "a\n"}
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.requests: list[tuple[str, str | None]] = []
        self.gone = 0
        self.forgotten = 0
        self.denied = False
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.requests.append((self.path, self.headers.get("Authorization")))
                url = urlparse(self.path)
                query = parse_qs(url.query)
                if api.denied:
                    self._send(403, {"message": "configmaps is forbidden"})
                elif "watch" in query:
                    self._watch(int(query["resourceVersion"][0]))
                elif url.path.endswith("/configmaps"):
                    items = [api.config_map()] if query["fieldSelector"] == ["metadata.name=slurm-config"] else []
                    self._send(200, {"items": items, "metadata": {"resourceVersion": str(api.version)}})
                elif url.path.endswith("/pods"):
                    token = query.get("continue", [""])[0]
                    page = {
                        "items": [{"metadata": {"name": f"pod-{token or 0}"}}],
                        "metadata": {"continue": "" if token else "1"},
                    }
                    self._send(200, page)
                else:
                    self._send(404, {"message": f"{url.path} not found"})

            def _send(self, status: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _watch(self, version: int) -> None:
                self.send_response(200)
                self.end_headers()
                if api.gone or version < api.forgotten:
                    api.gone = max(0, api.gone - 1)
                    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
                    self.wfile.write(json.dumps(gone).encode() + b"\n")
                    return
                while (event := api.events.get()) is not None:
                    self.wfile.write(json.dumps(event).encode() + b"\n")
                    self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def config_map(self) -> dict[str, Any]:
        return {"metadata": {"name": "slurm-config", "resourceVersion": str(self.changed)}, "data": self.data}

    def change(self, data: dict[str, str]) -> None:
        self.version += 1
        self.changed = self.version
        self.data = data
        self.events.put({"type": "MODIFIED", "object": self.config_map()})


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.events.put(None)
    fake.server.shutdown()
    fake.server.server_close()


@pytest.fixture
def kube(api: FakeApi, tmp_path: Path) -> Kube:
    (tmp_path / "token").write_text("secret-token\n")
    return Kube(
        host="127.0.0.1", port=api.server.server_address[1], namespace="ns", tls=False, service_account=tmp_path
    )


def follow(kube: Kube, mounted: Path) -> queue.Queue[dict[str, str]]:
    changes: queue.Queue[dict[str, str]] = queue.Queue()
    source = ConfigMapSource(kube, "slurm-config", changes, lambda _: None, mounted=mounted)
    threading.Thread(target=source.run, daemon=True).start()
    return changes


def test_the_token_is_sent(api: FakeApi, kube: Kube) -> None:
    kube.list_pods()

    assert {token for _, token in api.requests} == {"Bearer secret-token"}


def test_a_list_of_several_pages_is_whole(kube: Kube) -> None:
    assert [pod["metadata"]["name"] for pod in kube.list_pods()] == ["pod-0", "pod-1"]


def test_an_error_of_the_server_tells_its_message(api: FakeApi, kube: Kube) -> None:
    api.denied = True

    with pytest.raises(KubeError, match="403 configmaps is forbidden"):
        kube.read_config_map("slurm-config")


def test_no_server_is_a_kube_error(tmp_path: Path) -> None:
    with pytest.raises(KubeError):
        Kube(host="127.0.0.1", port=9, namespace="ns", tls=False, service_account=tmp_path).list_pods()


def test_outside_of_a_pod_there_is_no_api() -> None:
    assert Kube.in_cluster("ns", {}) is None
    found = Kube.in_cluster("ns", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert found is not None
    assert (found.host, found.port, found.tls) == ("10.0.0.1", 6443, True)


def test_a_change_arrives_at_once(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    changes = follow(kube, tmp_path)
    assert changes.get(timeout=5) == {"slurm.conf": "a\n"}

    api.change({"slurm.conf": "b\n"})

    assert changes.get(timeout=5) == {"slurm.conf": "b\n"}


def test_an_event_without_a_change_of_the_files_is_none(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    changes = follow(kube, tmp_path)
    changes.get(timeout=5)
    api.change({"slurm.conf": "a\n"})
    api.change({"slurm.conf": "c\n"})

    assert changes.get(timeout=5) == {"slurm.conf": "c\n"}


def test_a_forgotten_resource_version_is_read_again(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    api.gone = 2
    changes = follow(kube, tmp_path)
    changes.get(timeout=5)

    api.change({"slurm.conf": "d\n"})

    assert changes.get(timeout=5) == {"slurm.conf": "d\n"}


def test_one_that_has_not_changed_for_long_is_watched_all_the_same(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    api.version, api.forgotten = 900, 800  # the server has come far since the change, and remembers only the last part
    changes = follow(kube, tmp_path)
    changes.get(timeout=5)

    api.change({"slurm.conf": "d\n"})

    assert changes.get(timeout=5) == {"slurm.conf": "d\n"}
    assert len(api.requests) == 2, "it was read once, and watched once"


def test_a_watch_that_breaks_is_started_again_and_misses_nothing(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    changes = follow(kube, tmp_path)
    changes.get(timeout=5)
    api.data = {"slurm.conf": "while away\n"}
    api.events.put(None)

    assert changes.get(timeout=5) == {"slurm.conf": "while away\n"}


def test_a_deleted_config_map_changes_nothing(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    changes = follow(kube, tmp_path)
    changes.get(timeout=5)
    api.events.put({"type": "DELETED", "object": api.config_map()})
    api.change({"slurm.conf": "again\n"})

    assert changes.get(timeout=5) == {"slurm.conf": "again\n"}


def test_without_the_api_the_mounted_copy_serves_at_boot(api: FakeApi, kube: Kube, tmp_path: Path) -> None:
    api.denied = True
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "slurm.conf").write_text("mounted\n")

    assert follow(kube, mounted).get(timeout=10) == {"slurm.conf": "mounted\n"}


def test_mounted_files_are_offered_once_per_change(tmp_path: Path) -> None:
    changes: queue.Queue[dict[str, str]] = queue.Queue()
    log: list[str] = []
    source = MountedSource(tmp_path, changes, log.append, FakeClock())
    source.poll()
    assert "waiting for" in log[0]
    (tmp_path / "slurm.conf").write_text("1")
    source.poll()
    source.poll()
    (tmp_path / "slurm.conf").write_text("2")
    source.poll()

    assert [changes.get_nowait()["slurm.conf"] for _ in range(changes.qsize())] == ["1", "2"]
