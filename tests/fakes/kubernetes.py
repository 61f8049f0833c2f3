"""A Kubernetes API server: collections of objects with versions, over HTTP or HTTPS.

It lists (in pages, by labels, by name, without specification and status), gets, creates, patches, deletes and watches.
It knows the kinds in `KINDS`, validates nothing and runs no controllers. tests/e2e/test_fakes.py asks it and a real one
the same.
"""

from __future__ import annotations

import copy
import socket
import ssl
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from operator import itemgetter
from typing import Any, Final
from uuid import uuid4

from tests.fakes.kubernetes_http import Handler, Question, Refused

Object = dict[str, Any]

KINDS: Final = {
    "configmaps": "ConfigMap", "events": "Event", "namespaces": "Namespace", "nodes": "Node", "pods": "Pod",
    "podtemplates": "PodTemplate", "statefulsets": "StatefulSet", "jobs": "Job", "leases": "Lease",
}  # fmt: skip


def merged(old: Any, change: Any, *, by_type: bool = False) -> Any:
    """A merge patch (RFC 7386); with `by_type` as a strategic one merges conditions."""
    if by_type and isinstance(change, list) and all("type" in item for item in change):
        named = {item["type"]: item for item in old or []}
        return [*(named | {item["type"]: {**named.get(item["type"], {}), **item} for item in change}).values()]
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value, by_type=by_type)
    return result


class FakeKubernetes:
    """One API server; `close` ends it."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, listener: socket.socket | None = None) -> None:
        self.changed = threading.Condition()
        """Held while something changes. Holding it lets several changes appear as one."""
        self.collections: dict[str, dict[str, Object]] = {}
        """By path and name."""
        self.version = 5
        """Of the last change."""
        self.forgotten = 0
        """Changes up to this version are not remembered: who watches from before is told so."""
        self.page = 500
        """Most objects in one answer to a list."""
        self.token = ""
        """What a request must carry; empty: nothing."""
        self.down = False
        """Every request is answered with 503, and watches end."""
        self.refuses: dict[str, int] = {}
        """Part of a method and path -> status."""
        self.questions: list[Question] = []
        """Requests so far."""
        self.before_answer: Callable[[], object] = lambda: None
        """Called before each answer and each event of a watch: what it waits for they wait for."""
        self.before_change: Callable[[], None] = lambda: None
        """Called before a request changes something."""
        self._history: list[tuple[int, str, Object | None, Object | None]] = []
        self._watches_of = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=listener is None)
        if listener is not None:
            self._server.socket.close()
            self._server.socket = listener
        if tls is not None:
            # Each connection's own thread does the handshake: a client that is paused holds up nobody else.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.daemon_threads = True
        self._server.kubernetes = self  # type: ignore[attr-defined]
        serve = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        serve.start()

    @property
    def port(self) -> int:
        return int(self._server.socket.getsockname()[1])

    def close(self) -> None:
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()

    # ---------------------------------------------------------------- what is there

    def put(self, collection: str, name: str, **content: Any) -> Object:
        """Make an object, or replace what it contains. `metadata` is added to its own."""
        old = self.collections.setdefault(collection, {}).get(name)
        own = old["metadata"] if old else {"uid": str(uuid4()), "creationTimestamp": _now()}
        metadata = {**own, "name": name, **content.get("metadata", {})}
        return self._store(collection, name, {**_kind(collection), **content, "metadata": metadata})

    def remove(self, collection: str, name: str) -> None:
        """As if it had never been."""
        self._store(collection, name, None)

    def end_watches(self) -> None:
        """End all watches that are there."""
        with self.changed:
            self._watches_of += 1
            self.changed.notify_all()

    def _store(self, collection: str, name: str, new: Object | None) -> Object:
        with self.changed:
            objects = self.collections.setdefault(collection, {})
            old = objects.get(name)
            if new is not None and old is not None:
                same = {**new, "metadata": {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}}
                if same == old:
                    return old
            self.version += 1
            result: Object = copy.deepcopy(new or old or {})
            result.setdefault("metadata", {})["resourceVersion"] = str(self.version)
            if new is None:
                objects.pop(name, None)
            else:
                objects[name] = result
            change = (result, None) if new is None else (old, result)
            self._history.append((self.version, collection, *change))
            self.changed.notify_all()
            return result

    # ---------------------------------------------------------------- requests

    def answer(self, question: Question) -> tuple[int, Object]:
        """One request that is no watch; its status and answer."""
        self.check(question)
        if question.method != "GET":
            self.before_change()
        with self.changed:
            match question.method, question.name, question.subresource:
                case "GET", "", _:
                    return 200, self._list(question)
                case "GET", _, _:
                    return 200, self._found(question)
                case "POST", "", _:
                    return 201, self._create(question)
                case "PATCH", _, _:
                    return 200, self._patch(question)
                case "DELETE", _, _:
                    return 200, self._delete(question, question.body)
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def check(self, question: Question) -> None:
        """Refuse what is refused before anybody looks for an object."""
        self.questions.append(question)
        if self.down:
            raise Refused(503, "ServiceUnavailable", "down")
        if self.token and question.token != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")
        for part, status in self.refuses.items():
            if part in f"{question.method} {question.path}":
                message = f"{question.resource} is forbidden"
                raise Refused(status, {403: "Forbidden", 409: "Conflict"}.get(status, "InternalError"), message)
        if question.resource not in KINDS:
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _found(self, question: Question) -> Object:
        found = self.collections.get(question.collection, {}).get(question.name)
        if found is None:
            raise Refused(404, "NotFound", f'{question.resource} "{question.name}" not found')
        return found

    def _list(self, question: Question) -> Object:
        found = [item for item in self.collections.get(question.collection, {}).values() if question.selects(item)]
        begin = int(question.query.get("continue") or 0)
        size = min(self.page, int(question.query.get("limit") or self.page))
        metadata: Object = {"resourceVersion": str(self.version)}
        if begin + size < len(found):
            metadata["continue"] = str(begin + size)
        items = [question.shown(item, listed=True) for item in found[begin : begin + size]]
        kind = "PartialObjectMetadata" if question.metadata_only else KINDS[question.resource]
        version = "meta.k8s.io/v1" if question.metadata_only else _kind(question.collection)["apiVersion"]
        return {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": items}

    def _create(self, question: Question) -> Object:
        name = question.body["metadata"]["name"]
        if name in self.collections.get(question.collection, {}):
            raise Refused(409, "AlreadyExists", f'{question.resource} "{name}" already exists')
        return self.put(question.collection, name, **question.body)

    def _patch(self, question: Question) -> Object:
        old, change = self._found(question), copy.deepcopy(question.body)
        version = change.get("metadata", {}).pop("resourceVersion", None)
        if version not in {None, old["metadata"]["resourceVersion"]}:
            raise Refused(409, "Conflict", _conflict(question, "the object has been modified; please apply your "
                          "changes to the latest version and try again"))  # fmt: skip
        new = merged(old, change, by_type="strategic" in question.content_type)
        # Status is a resource of its own: neither change touches what the other is for.
        theirs = ("spec", "data") if question.subresource else ("status",)
        kept = {key: value for key, value in new.items() if key not in theirs}
        kept |= {key: value for key, value in old.items() if key in theirs}
        return self._store(question.collection, question.name, kept)

    def _delete(self, question: Question, options: Mapping[str, Any]) -> Object:
        found = self._found(question)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted is not None and wanted != found["metadata"]["uid"]:
            raise Refused(409, "Conflict", _conflict(question, f"Precondition failed: UID in precondition: {wanted}, "
                          f"UID in object meta: {found['metadata']['uid']}"))  # fmt: skip
        if (found.get("spec") or {}).get("nodeName"):  # kubelet ends it first
            gone = {**found, "metadata": {**found["metadata"], "deletionTimestamp": _now()}}
            return self._store(question.collection, question.name, gone)
        self.remove(question.collection, question.name)
        return found if question.resource == "pods" else _status("Success")

    def watch(self, question: Question) -> Iterator[Object]:
        """Events for as long as the watch lasts; nothing from time to time."""
        with self.changed:
            mine, seen = self._watches_of, int(question.query.get("resourceVersion") or 0)
            forgotten = seen < self.forgotten
        if forgotten:
            message = f"too old resource version: {seen} ({self.version})"
            yield {"type": "ERROR", "object": Refused(410, "Expired", message).status()}
            return
        while True:
            with self.changed:
                if self.version <= seen and not self._ends(mine):
                    self.changed.wait(timeout=0.2)
                if self._ends(mine):
                    return
                events = [
                    event
                    for _, collection, old, new in self._history[bisect_right(self._history, seen, key=itemgetter(0)) :]
                    if collection == question.collection and (event := question.event(old, new))
                ]
                seen = self.version
            self.before_answer()
            yield from events
            yield {}

    def _ends(self, watches: int) -> bool:
        return self.down or watches != self._watches_of


def _conflict(question: Question, why: str) -> str:
    return f'Operation cannot be fulfilled on {question.resource} "{question.name}": {why}'


def _status(text: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": text}


def _kind(collection: str) -> Object:
    words = collection.split("/")
    group = "/".join(words[2:4]) if words[1] == "apis" else "v1"
    return {"kind": KINDS[collection.rpartition("/")[2]], "apiVersion": group}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
