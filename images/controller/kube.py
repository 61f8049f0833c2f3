"""A small client of the Kubernetes API: what the config agent needs, with the standard library.

Inside a pod it takes the service account's token (which Kubernetes renews: it is read for every request), the cluster's
certificate and the address from where Kubernetes puts them.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_TIMEOUT_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 240
"""The server ends a watch after this; we then start the next one. A silently dead connection is noticed a bit later."""

_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata"
_METADATA_GROUP: Final = ";g=meta.k8s.io;v=v1"

Object = Mapping[str, Any]


def own_namespace() -> str:
    """The pod's namespace: NAMESPACE, else what Kubernetes mounts beside the token; empty outside of a pod."""
    mounted = SERVICE_ACCOUNT / "namespace"
    return os.environ.get("NAMESPACE") or (mounted.read_text(encoding="ascii").strip() if mounted.is_file() else "")


class KubeError(Exception):
    """The API server did not give what was asked for. `status` is the HTTP status, or None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def may_resume(self) -> bool:
        """Whether a watch that ended so may go on from where it was: the connection broke, or the server is busy."""
        return self.status in {None, http.client.TOO_MANY_REQUESTS}


@dataclass(frozen=True, kw_only=True)
class Kube:
    """Where the API server is."""

    host: str
    port: int
    namespace: str
    tls: bool = True
    service_account: Path = SERVICE_ACCOUNT

    @staticmethod
    def in_cluster(namespace: str, env: Mapping[str, str] | None = None) -> Kube | None:
        """The API server of the cluster that this pod runs in, or None outside of one."""
        env = os.environ if env is None else env
        host = env.get("KUBERNETES_SERVICE_HOST")
        if not host or not namespace:
            return None
        return Kube(host=host, port=int(env.get("KUBERNETES_SERVICE_PORT", "443")), namespace=namespace)

    def read_config_map(self, name: str) -> tuple[Object, str]:
        """One ConfigMap, and the version to watch it from.

        That is the collection's: the object's own is that of its last change, which the server forgets after minutes
        (five by default), and a watch from there ends at once.
        """
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        found, version = self._list_with_version(path, {"fieldSelector": f"metadata.name={name}"})
        if not found:
            raise KubeError(f"there is no ConfigMap {name} in namespace {self.namespace}", http.client.NOT_FOUND)
        return found[0], version

    def get_namespace(self) -> Object:
        """The namespace itself."""
        return self._get_json(f"/api/v1/namespaces/{self.namespace}")

    def list_pods(self) -> list[Object]:
        """All pods of the namespace."""
        return self._list(f"/api/v1/namespaces/{self.namespace}/pods")

    def list_workers(self) -> list[Object]:
        """All worker pods of the namespace, those that are leaving included, without specification and status."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.list_all(path, selector="app.kubernetes.io/component=worker", metadata_only=True)[0]

    def list_stateful_sets(self) -> list[Object]:
        """All StatefulSets of the namespace."""
        return self._list(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets")

    def watch_config_map(self, name: str, resource_version: str) -> Iterator[tuple[str, Object]]:
        """(type, object) of each change after `resource_version`, until the server ends the watch.

        Raises KubeError(status=410) when the server has forgotten that version: read it again, and watch from there.
        """
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        return self._watch(path, resource_version, {"fieldSelector": f"metadata.name={name}"})

    def list_all(self, path: str, *, selector: str = "", metadata_only: bool = False) -> tuple[list[Object], str]:
        """All objects of a collection that have the labels, and the version to watch from.

        `metadata_only`: without specification and status, which are most of a large object.
        """
        accept = f"{_METADATA}List{_METADATA_GROUP}" if metadata_only else _JSON
        return self._list_with_version(path, {"labelSelector": selector} if selector else {}, accept)

    def watch(
        self, path: str, resource_version: str, *, selector: str = "", metadata_only: bool = False
    ) -> Iterator[tuple[str, Object]]:
        """Changes of a collection after `list_all`, as `watch_config_map` has them."""
        accept = f"{_METADATA}{_METADATA_GROUP}" if metadata_only else _JSON
        return self._watch(path, resource_version, {"labelSelector": selector} if selector else {}, accept)

    def _watch(
        self, path: str, resource_version: str, selectors: Mapping[str, str], accept: str = _JSON
    ) -> Iterator[tuple[str, Object]]:
        query = urlencode(
            {
                "watch": "true",
                **selectors,
                "resourceVersion": resource_version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": WATCH_SECONDS,
            }
        )
        connection = self._connect(WATCH_SECONDS + 15)
        try:
            response = self._request(connection, f"{path}?{query}", accept)
            # The server may have nothing to tell for a minute: this says that it watches.
            yield "BOOKMARK", {"metadata": {"resourceVersion": resource_version}}
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise KubeError(str(event["object"].get("message", "watch error")), event["object"].get("code"))
                yield event["type"], event["object"]
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise KubeError(f"the watch broke: {error}") from error
        finally:
            connection.close()

    def _list(self, path: str) -> list[Object]:
        return self._list_with_version(path, {})[0]

    def _list_with_version(
        self, path: str, selectors: Mapping[str, str], accept: str = _JSON
    ) -> tuple[list[Object], str]:
        items: list[Object] = []
        token = ""
        while True:
            query = urlencode({"limit": 500, **selectors, **({"continue": token} if token else {})})
            page = self._get_json(f"{path}?{query}", accept)
            items += page.get("items") or []
            metadata = page.get("metadata", {})
            token = metadata.get("continue", "")
            if not token:
                return items, str(metadata.get("resourceVersion", ""))

    def _get_json(self, path: str, accept: str = _JSON) -> Object:
        connection = self._connect(REQUEST_TIMEOUT_SECONDS)
        try:
            result: Object = json.loads(self._request(connection, path, accept).read())
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise KubeError(f"no answer from the API server: {error}") from error
        else:
            return result
        finally:
            connection.close()

    def _request(
        self, connection: http.client.HTTPConnection, path: str, accept: str = _JSON
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "User-Agent": "slurmstack-config-agent"}
        token = self.service_account / "token"
        if token.is_file():
            headers["Authorization"] = f"Bearer {token.read_text(encoding='ascii').strip()}"
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            body = response.read(2000).decode(errors="replace")
            raise KubeError(f"GET {path.partition('?')[0]}: {response.status} {_status_message(body)}", response.status)
        return response

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        authority = self.service_account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.is_file() else None)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)


def _status_message(body: str) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:200]
