"""A stand-in for Pulumi's Nebius provider, for the real engine: it makes nothing.

The engine starts it as a plugin, for previews of what is not there yet: all that only the cloud can tell is unknown.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """Takes whatever it is asked to make, and calls it by its own name. The methods' names are the protocol's."""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say what the plugin understands."""
        del request, context
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    def Parameterize(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Be the provider that the SDK asks for."""
        del context
        return provider_pb2.ParameterizeResponse(name=request.value.name, version=request.value.version)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Version of the plugin."""
        del request, context
        return plugin_pb2.PluginInfo(version="1.5.0")

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Any configuration will do."""
        del context
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say what the provider understands."""
        del request, context
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True
        )

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Any inputs will do; the recorded ones are judged elsewhere (tests/graph/nebius_api.py)."""
        del context
        return provider_pb2.CheckResponse(inputs=request.news)

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Nothing is known in a preview but the inputs."""
        del context
        made = struct_pb2.Struct()
        made.CopyFrom(request.properties)
        made.update({"status": UNKNOWN})
        return provider_pb2.CreateResponse(properties=made)


def main() -> None:
    """Serve on a free port, which the engine reads from the first line."""
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(StandIn(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
