"""How the API server of `tests.fakes.kubernetes` understands requests, and speaks HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlparse

Object = dict[str, Any]


class Refused(Exception):  # noqa: N818 - an answer rather than an error
    """A request is answered with a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    def status(self) -> Object:
        """The object that says so."""
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self),
            "reason": self.reason, "code": self.code,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Object
    token: str = ""
    accept: str = ""
    content_type: str = ""

    @property
    def _words(self) -> tuple[str, list[str]]:
        """Group and version, and the rest of the path."""
        words = self.path.strip("/").split("/")
        front = 2 if words[0] == "api" else 3
        return "/" + "/".join(words[:front]), words[front:]

    @property
    def _split(self) -> tuple[str, list[str]]:
        """The collection, and what follows."""
        group, words = self._words
        length = 3 if words[0] == "namespaces" and len(words) > 2 else 1
        return "/".join([group, *words[:length]]), words[length:]

    @property
    def collection(self) -> str:
        return self._split[0]

    @property
    def resource(self) -> str:
        return self.collection.rpartition("/")[2]

    @property
    def name(self) -> str:
        return next(iter(self._split[1]), "")

    @property
    def subresource(self) -> str:
        return next(iter(self._split[1][1:]), "")

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in {"true", "1"}

    @property
    def metadata_only(self) -> bool:
        return "as=PartialObjectMetadata" in self.accept

    def selects(self, item: Object) -> bool:
        """Whether a list or a watch has this object."""
        metadata = item["metadata"]
        for term in filter(None, self.query.get("labelSelector", "").split(",")):
            key, equals, value = term.partition("=")
            found = metadata.get("labels", {}).get(key)
            if found is None or (equals and found != value):
                return False
        field, _, value = self.query.get("fieldSelector", "").partition("=")
        return not field or metadata["name" if field == "metadata.name" else field] == value

    def shown(self, item: Object, *, listed: bool = False) -> Object:
        """An object as this request wants it. In a list it does not say its kind, unless the list is not of its own."""
        if self.metadata_only:
            return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
        return {key: value for key, value in item.items() if not listed or key not in {"kind", "apiVersion"}}

    def event(self, old: Object | None, new: Object | None) -> Object | None:
        """What a watch tells of a change, if anything."""
        before, after = old is not None and self.selects(old), new is not None and self.selects(new)
        if new is not None and after:
            return {"type": "MODIFIED" if before else "ADDED", "object": self.shown(new)}
        if old is None or not before:
            return None
        version = {"resourceVersion": (new or old)["metadata"]["resourceVersion"]}  # of what it was when it left
        return {"type": "DELETED", "object": self.shown({**old, "metadata": {**old["metadata"], **version}})}


class Handler(BaseHTTPRequestHandler):
    """Speaks for the server's `kubernetes`."""

    def _question(self) -> Question:
        length = int(self.headers.get("Content-Length") or 0)
        url = urlparse(self.path)
        return Question(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            body=json.loads(self.rfile.read(length)) if length else {},
            token=self.headers.get("Authorization", ""),
            accept=self.headers.get("Accept", ""),
            content_type=self.headers.get("Content-Type", ""),
        )

    def _answer(self) -> None:
        kubernetes: Any = self.server.kubernetes  # type: ignore[attr-defined]
        question = self._question()
        kubernetes.before_answer()
        try:
            if question.is_watch:
                kubernetes.check(question)
                self._watch(kubernetes, question)
                return
            status, answer = kubernetes.answer(question)
        except Refused as refused:
            status, answer = refused.code, refused.status()
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, kubernetes: Any, question: Question) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            for event in kubernetes.watch(question):
                self.wfile.write(json.dumps(event).encode() + b"\n" if event else b"")
                self.wfile.flush()
        except OSError:
            pass  # nobody watches any more

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: the requests are kept."""
