"""A small client of the Kubernetes API: what the programs in pods need, with the standard library.

Inside a pod it takes the service account's token (which Kubernetes renews: it is read for every request), the cluster's
certificate and the address from where Kubernetes puts them.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlencode

from images.common.wait import Clock, Reminder

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 240
"""The server ends a watch after this; we then start the next one. A silently dead connection is noticed a bit later."""

WORKER_PODS: Final = "slurmstack/pool"
"""Label that every worker pod has."""

_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata"
_METADATA_GROUP: Final = ";g=meta.k8s.io;v=v1"

Object = Mapping[str, Any]

RETRY_SECONDS: Final = 5.0

Value = TypeVar("Value")


def time_of(text: str | None) -> float:
    """A time as Kubernetes writes it, in seconds since 1970; 0 where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def own_namespace(env: Mapping[str, str] = os.environ) -> str:
    """The pod's namespace: NAMESPACE, else what Kubernetes mounts beside the token; empty outside of a pod."""
    mounted = SERVICE_ACCOUNT / "namespace"
    return env.get("NAMESPACE") or (mounted.read_text(encoding="ascii").strip() if mounted.is_file() else "")


class KubeError(Exception):
    """The API server did not give what was asked for. `status` is the HTTP status, or None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Kube:
    """Where the API server is."""

    host: str
    port: int
    namespace: str
    tls: bool = True
    service_account: Path = SERVICE_ACCOUNT

    @classmethod
    def in_cluster(cls, namespace: str, env: Mapping[str, str] | None = None) -> Self | None:
        """The API server of the cluster that this pod runs in, or None outside of one."""
        env = os.environ if env is None else env
        host = env.get("KUBERNETES_SERVICE_HOST")
        if not host or not namespace:
            return None
        return cls(host=host, port=int(env.get("KUBERNETES_SERVICE_PORT", "443")), namespace=namespace)

    def path(self, kind: str) -> str:
        """The collection of the namespace: `pods`, `configmaps`, ..."""
        return f"/api/v1/namespaces/{self.namespace}/{kind}"

    def get_namespace(self) -> Object:
        """The namespace itself."""
        return self.get(f"/api/v1/namespaces/{self.namespace}")

    def list_pods(self) -> list[Object]:
        """All pods of the namespace."""
        return self.list_all(self.path("pods"))[0]

    def list_workers(self) -> list[Object]:
        """All worker pods of the namespace, those that are leaving included, without specification and status."""
        return self.list_all(self.path("pods"), selector=WORKER_PODS, metadata_only=True)[0]

    def list_stateful_sets(self) -> list[Object]:
        """All StatefulSets of the namespace."""
        return self.list_all(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets")[0]

    def get(self, path: str, *, accept: str = _JSON) -> Object:
        """One object, or one page of a list."""
        with self._request("GET", path, accept=accept) as response:
            answer: Object = json.load(response)
            return answer

    def send(self, method: str, path: str, body: Mapping[str, Any], content_type: str = _JSON) -> None:
        """Change or make an object."""
        with self._request(method, path, body=json.dumps(body).encode(), content_type=content_type):
            pass

    def delete_pod(self, name: str, uid: str, *, force: bool = False) -> None:
        """End this very pod, not a later one of its name. One that is gone is no failure. `force`: nobody is asked."""
        options = {"preconditions": {"uid": uid}, **({"gracePeriodSeconds": 0} if force else {})}
        try:
            self.send("DELETE", f"{self.path('pods')}/{name}", options)
        except KubeError as error:
            if error.status not in {http.client.NOT_FOUND, http.client.CONFLICT}:
                raise

    def list_all(
        self, path: str, *, selector: str = "", fields: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """All objects of a collection that have the labels and fields, and the version to watch from.

        That is the collection's: an object's own is that of its last change, which the server forgets after minutes
        (five by default), and a watch from there ends at once. `metadata_only`: without specification and status, which
        are most of a large object.
        """
        accept = f"{_METADATA}List{_METADATA_GROUP}" if metadata_only else _JSON
        items: list[Object] = []
        token = ""
        while True:
            page = self.get(f"{path}?{_query(selector, fields, {'limit': 500, 'continue': token})}", accept=accept)
            items += page.get("items") or []
            metadata = page.get("metadata", {})
            token = metadata.get("continue", "")
            if not token:
                return items, str(metadata.get("resourceVersion", ""))

    def watch(
        self, path: str, version: str, *, selector: str = "", fields: str = "", metadata_only: bool = False
    ) -> Iterator[tuple[str, Object]]:
        """(type, object) of each change of a collection after a version, until the server ends the watch.

        Raises KubeError(status=410) when the server has forgotten that version: list again, and watch from there.
        """
        accept = f"{_METADATA}{_METADATA_GROUP}" if metadata_only else _JSON
        options = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        whole = f"{path}?{_query(selector, fields, options)}"
        with self._request("GET", whole, accept=accept, timeout=WATCH_SECONDS + 15) as response:
            # The server may have nothing to tell for a minute: this says that it watches.
            yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise KubeError(str(event["object"].get("message", "watch error")), event["object"].get("code"))
                yield event["type"], event["object"]

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        *,
        accept: str = _JSON,
        body: bytes | None = None,
        content_type: str = "",
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"Accept": accept, "User-Agent": "slurmstack"}
        if content_type:
            headers["Content-Type"] = content_type
        connection = self._connect(timeout)
        try:
            token = self.service_account / "token"
            if token.is_file():
                headers["Authorization"] = f"Bearer {token.read_text(encoding='ascii').strip()}"
            connection.connect()
            _notice_a_loss(connection.sock)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status not in {http.client.OK, http.client.CREATED}:
                message = _status_message(response.read(2000).decode(errors="replace"))
                raise KubeError(f"{method} {path.partition('?')[0]}: {response.status} {message}", response.status)
            yield response
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise KubeError(f"no answer from the API server: {error}") from error
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        authority = self.service_account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.is_file() else None)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)


def _notice_a_loss(connection: socket.socket) -> None:
    """Within half a minute, where the other end is gone: a watch would believe for minutes that nothing changes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _query(selector: str, fields: str, options: Mapping[str, object]) -> str:
    named = {"labelSelector": selector, "fieldSelector": fields, **options}
    return urlencode({name: value for name, value in named.items() if value})


def _status_message(body: str) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:200]


class Follower(Generic[Value]):
    """A copy of one kind of object, by name: what `extract` takes of each."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        extract: Callable[[Object], Value],
        log: Callable[[str], None],
        *,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        retry: float = RETRY_SECONDS,
        changed: Callable[[Mapping[str, Value]], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`changed` gets the copy when it is new and after each event; `retry`: seconds until the next try."""
        self._kube = kube
        self._path = path
        self._extract = extract
        self._log = log
        self._selector, self._fields, self._metadata_only = selector, fields, metadata_only
        self._retry = retry
        self._changed = changed
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._values: dict[str, Value] = {}
        self.synced = False
        """Whether the API server has told all, and still answers: an old copy proves nothing."""

    def values(self) -> dict[str, Value]:
        """The latest copy; after a failure the last one that could be had."""
        with self._lock:
            return dict(self._values)

    def start(self) -> None:
        """Follow in the background."""
        threading.Thread(target=self.run, daemon=True, name=self._path).start()

    def run(self) -> None:
        """Follow for ever."""
        reminder = Reminder(self._log, self._clock)
        while True:
            try:
                self.follow_once()
                reminder = Reminder(self._log, self._clock)
            except (KubeError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
                self.synced = False
                reminder.waiting(f"{self._path} of the API server: {error}")
                self._clock.sleep(self._retry)
            except BaseException:
                self.synced = False  # nobody follows any more
                raise

    def follow_once(self) -> None:
        """Read all, and watch until the server ends the watch."""
        selected: dict[str, Any] = {
            "selector": self._selector, "fields": self._fields, "metadata_only": self._metadata_only,
        }  # fmt: skip
        items, version = self._kube.list_all(self._path, **selected)
        with self._lock:
            self._values = {item["metadata"]["name"]: self._extract(item) for item in items}
        self.synced = True
        self._notify()
        for kind, item in self._kube.watch(self._path, version, **selected):
            self._take(kind, item)

    def _take(self, kind: str, item: Object) -> None:
        """One event. Any of them shows that the server is there again."""
        self.synced = True
        if kind == "BOOKMARK":
            return
        name = item["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._values.pop(name, None)
            else:
                self._values[name] = self._extract(item)
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed(self.values())
