"""An API server that keeps Nodes and worker pods, and takes changes as Kubernetes does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from images.health.watch.machines import Machine, Place, machine_of, place_of
from tests.unit.images.health.watch.views import NOW

Object = dict[str, Any]


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(old: Any, change: Any) -> Any:
    """RFC 7386, which is what `kubectl cordon` uses too."""
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class FakeKubernetes:
    """Machines m-0, m-1, …, each with a worker w-0, w-1, …"""

    def __init__(self, count: int) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.events: list[Object] = []
        self.changes: list[str] = []
        self.asked: list[str] = []
        self.refuses: dict[str, int] = {}
        """Part of a path -> status."""
        self.before_change: Callable[[], None] = lambda: None
        for number in range(count):
            self.add_node(f"m-{number}")
            self.add_pod(f"w-{number}", f"m-{number}")
        kubernetes = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                status, answer = kubernetes.serve(self.command, self.path.partition("?")[0], body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def add_node(self, name: str) -> None:
        self.nodes[name] = {
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    def add_pod(self, name: str, node: str, *, started: float = NOW - 9000) -> None:
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"uid of {name} on {node}"},
            "spec": {"nodeName": node},
            "status": {"startTime": stamp(started)},
        }

    def cordon(self, name: str, *, cordoned: bool = True) -> None:
        """As a person does it."""
        self._change(name, {"spec": {"unschedulable": cordoned or None}})

    def is_cordoned(self, name: str) -> bool:
        return bool(self.nodes[name]["spec"].get("unschedulable"))

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.nodes[name]["metadata"].get("annotations", {})
        return found

    def set_condition(self, name: str, condition: Object) -> None:
        listed = self.nodes[name]["status"]["conditions"]
        old: Object = next((item for item in listed if item["type"] == condition["type"]), {})
        kept = [item for item in listed if item["type"] != condition["type"]]
        self._change(name, {"status": {"conditions": [*kept, {**old, **condition}]}})

    def condition(self, name: str, kind: str) -> str | None:
        listed = self.nodes[name]["status"]["conditions"]
        return next((item["status"] for item in listed if item["type"] == kind), None)

    def machines(self) -> dict[str, Machine]:
        return {name: machine_of(node) for name, node in self.nodes.items()}

    def places(self) -> dict[str, Place]:
        return {name: place_of(pod) for name, pod in self.pods.items()}

    def serve(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        """One request; its status and answer."""
        self.asked.append(f"{method} {path}")
        for part, status in self.refuses.items():
            if part in f"{method} {path}":
                return status, {"message": "refused"}
        if method != "GET" and not path.endswith("/events"):
            self.before_change()
        parts = path.split("/")
        lists = {"/api/v1/nodes": self.nodes, "/api/v1/namespaces/ns/pods": self.pods}
        if path in lists:
            return 200, {"items": list(lists[path].values()), "metadata": {"resourceVersion": "1"}}
        if path.endswith("/events"):
            self.events.append(body)
            return 201, {}
        if path.endswith("/eviction"):
            return self._evict(parts[6], body)
        if method == "PATCH":
            return self._patch(parts[4], body, status=path.endswith("/status"))
        found = self.nodes.get(parts[4])
        return (200, found) if found is not None else (404, {"message": "not found"})

    def _patch(self, name: str, body: Object, *, status: bool) -> tuple[int, Object]:
        if status:
            (condition,) = body["status"]["conditions"]
            self.set_condition(name, condition)
            self.changes.append(f"{condition['type']}={condition['status']} {name}")
            return 200, {}
        version = body["metadata"].pop("resourceVersion")
        if version != self.nodes[name]["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        self._change(name, body)
        self.changes.append(f"{'cordon' if self.is_cordoned(name) else 'uncordon'} {name}")
        return 200, {}

    def _change(self, name: str, change: Object) -> None:
        node = merged(self.nodes[name], change)
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)
        self.nodes[name] = node

    def _evict(self, pod: str, body: Object) -> tuple[int, Object]:
        found = self.pods.get(pod)
        if found is None or body["deleteOptions"]["preconditions"]["uid"] != found["metadata"]["uid"]:
            return 409, {"message": "precondition"}
        self.changes.append(f"evict {pod}")
        found["metadata"]["deletionTimestamp"] = stamp(NOW)
        return 201, {}
