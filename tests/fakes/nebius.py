"""A Nebius API server for tests: real gRPC on 127.0.0.1, with the message types of the official SDK.

Answers are kept by `Service/Method`. What has none is UNIMPLEMENTED, as with gRPC itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from nebius.base.protos.dynamic import REGISTRY


@dataclass(frozen=True, kw_only=True)
class Fails:
    """An answer that is a gRPC status."""

    code: grpc.StatusCode
    message: str = ""


@dataclass(frozen=True)
class Never:
    """No answer, ever."""


Reply = Any
"""A message of the SDK, `Fails`, `Never`, or a function from the request to one of these."""


@dataclass(kw_only=True)
class NebiusServer:
    """What the server says, and what it was asked."""

    replies: Mapping[str, Reply]
    token: str | None = None
    """Token that every request must carry; None: any."""
    address: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """Requests so far: `Service/Method` and the message."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a method, if the API has it. This is what gRPC asks of a generic handler."""
        service, _, method = details.method.lstrip("/").partition("/")
        try:
            descriptor = REGISTRY.service_descriptor(service)
        except KeyError:
            return None
        found = next((item for item in descriptor.methods if item.name == method), None)
        if found is None:
            return None
        request_type = REGISTRY.message_class(found.input_type.full_name)
        name = f"{service.rpartition('.')[2]}/{method}"
        metadata = dict(details.invocation_metadata)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._reply(name, request, context, metadata),
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _reply(self, name: str, request: Any, context: grpc.ServicerContext, metadata: Mapping[Any, Any]) -> Any:
        self.asked.append((name, request))
        if self.token is not None and metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")
        reply = self.replies.get(name, Fails(code=grpc.StatusCode.UNIMPLEMENTED))
        if callable(reply) and not isinstance(reply, type):
            reply = reply(request)
        if isinstance(reply, Never):
            while context.is_active() and not self.stopping.wait(0.02):
                pass
            context.abort(grpc.StatusCode.CANCELLED, "the server is stopping")
        if isinstance(reply, Fails):
            context.abort(reply.code, reply.message)
        return reply


@contextmanager
def serve(replies: Mapping[str, Reply], *, token: str | None = None) -> Iterator[NebiusServer]:
    """A server with these answers, until the context is left."""
    server = NebiusServer(replies=replies, token=token)
    transport = grpc.server(ThreadPoolExecutor(max_workers=32), handlers=[server])
    server.address = f"127.0.0.1:{transport.add_insecure_port('127.0.0.1:0')}"
    transport.start()
    try:
        yield server
    finally:
        server.stopping.set()
        transport.stop(grace=0.2).wait()


def pages(message: Callable[..., Any], items: list[Any], size: int) -> Callable[[Any], Any]:
    """Answers of a list in pages of so many items."""

    def reply(request: Any) -> Any:
        begin = int(request.page_token or 0)
        following = str(begin + size) if begin + size < len(items) else ""
        return message(items=items[begin : begin + size], next_page_token=following)

    return reply
