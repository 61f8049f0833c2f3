"""`slurmstack:logs`: where the logs of the cluster's pods go besides Kubernetes' own files."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from config.base import Section, matching
from config.names import SecretName
from config.servers import Image, check_server

_ENDPOINT = re.compile(r"^https?://([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$")
_HEADER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")


def _of_a_server(endpoint: str) -> str:
    address = check_server(endpoint)
    if address.path.rstrip("/").endswith("/v1/logs"):
        raise ValueError("ends with /v1/logs, which is added; leave that out")
    return endpoint


Endpoint = Annotated[
    str,
    matching(
        _ENDPOINT,
        "is not where OTLP is taken: http:// or https://, a host in small letters, perhaps a port and a path, and no "
        "user or question mark, such as https://loki.example.com/otlp",
    ),
    AfterValidator(_of_a_server),
    Field(json_schema_extra={"pattern": _ENDPOINT.pattern}),
]

Header = Annotated[
    str,
    matching(_HEADER, "is not the name of an HTTP header: letters, digits and '-', at most 64"),
    Field(json_schema_extra={"pattern": _HEADER.pattern}),
]


class Otlp(Section):
    """Logs go to a server that takes OTLP by HTTP: Loki 3 and later at `/otlp`, or any OpenTelemetry endpoint."""

    endpoint: Endpoint
    """Its address without `/v1/logs`, which is added."""

    image: Image
    """Full name of an image of the OpenTelemetry Collector with `filelog`, `file_storage` and `otlphttp`. The
    distribution `contrib` has them. None of ours: it is pulled as it is."""

    headers: dict[Header, SecretName] = Field(default_factory=dict, max_length=16)
    """Header of each request -> Secret in the cluster's namespace, which you make yourself, with its content in the key
    `value`: `{authorization: loki-token}`."""

    @property
    def port(self) -> int:
        """Where it listens."""
        address = urlsplit(self.endpoint)
        return address.port or (443 if address.scheme == "https" else 80)

    @property
    def address(self) -> str | None:
        """Its range of one address, where the stack file names no host but a number."""
        host = urlsplit(self.endpoint).hostname or ""
        try:
            number = ip_address(host)
        except ValueError:
            return None
        return f"{number}/{number.max_prefixlen}"


class Logs(Section):
    """What becomes of logs. Without anything they are where Kubernetes keeps them."""

    otlp: Otlp | None = None
    """Ships the logs of the namespace's pods to a server. Default: nowhere."""
