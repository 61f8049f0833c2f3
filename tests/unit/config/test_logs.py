"""`logs.otlp`: where logs go."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.logs import Otlp
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

OTLP = {"endpoint": "https://loki.example.com/otlp", "image": "registry.example.com:5000/otel/contrib:0.165.0"}


def sections(**otlp: Any) -> dict[str, Any]:
    return with_change(stacks.existing(), "logs", {"otlp": {**OTLP, **otlp}})


def test_nothing_is_shipped_unless_somebody_asks_for_it() -> None:
    assert load_config(stacks.existing()).logs.otlp is None


@pytest.mark.parametrize(
    ("endpoint", "port", "address"),
    [
        ("https://loki.example.com/otlp", 443, None),
        ("http://loki.monitoring.svc", 80, None),
        ("http://10.1.2.3:4318", 4318, "10.1.2.3/32"),
        ("https://[fd12::1]:3100/otlp", 3100, "fd12::1/128"),
    ],
)
def test_port_and_address_are_those_of_the_endpoint(endpoint: str, port: int, address: str | None) -> None:
    otlp = load_config(sections(endpoint=endpoint)).logs.otlp
    assert isinstance(otlp, Otlp)
    assert (otlp.port, otlp.address) == (port, address)


@pytest.mark.parametrize(
    ("otlp", "told"),
    [
        ({"endpoint": "loki.example.com"}, "endpoint: 'loki.example.com' is not where OTLP is taken"),
        ({"endpoint": "https://me:secret@loki/otlp"}, "endpoint: "),
        ({"endpoint": "https://loki/otlp?tenant=a"}, "endpoint: "),
        ({"endpoint": "https://loki/${env:HEADER_0}"}, "endpoint: "),
        (
            {"endpoint": "https://loki:70000/otlp"},
            "endpoint: 'https://loki:70000/otlp' has the port 70000, which",
        ),
        ({"endpoint": "https://loki:0/otlp"}, "endpoint: 'https://loki:0/otlp' has the port 0, which there is not"),
        ({"endpoint": "https://[1:2/otlp"}, "endpoint: "),
        ({"endpoint": "https://[12:3]/otlp"}, "endpoint: "),
        ({"endpoint": "https://loki/otlp/v1/logs/"}, "endpoint: 'https://loki/otlp/v1/logs/' ends with /v1/logs"),
        ({"endpoint": "http://localhost:4318"}, "endpoint: 'http://localhost:4318' is the collector's own pod"),
        ({"endpoint": "http://[::1]:4318"}, "endpoint: "),
        ({"endpoint": "http://127.0.0.2:4318"}, "endpoint: 'http://127.0.0.2:4318' is the collector's own pod"),
        ({"endpoint": "http://10.0.0.300:4318"}, "endpoint: 'http://10.0.0.300:4318' has the host '10.0.0.300', which"),
        ({"endpoint": "http://10.0.1"}, "endpoint: 'http://10.0.1' has the host '10.0.1', which is no address"),
        (
            {"endpoint": "http://0x7f000001"},
            "endpoint: 'http://0x7f000001' has the host '0x7f000001', which is no",
        ),
        ({"endpoint": "http://[::ffff:7f00:1]"}, "endpoint: 'http://[::ffff:7f00:1]' is the collector's own pod"),
        ({"endpoint": "http://a..b/otlp"}, "endpoint: 'http://a..b/otlp' has the host 'a..b', which no host can"),
        ({"endpoint": "http://a-.b"}, "endpoint: 'http://a-.b' has the host 'a-.b', which no host can be called"),
        ({"endpoint": f"http://{'a' * 64}.b"}, "endpoint: "),
        ({"endpoint": f"http://{'a.' * 127}b"}, "endpoint: "),
        ({"headers": {"authorization": "a", "Authorization": "b"}}, "headers: has 'authorization' more than once"),
        ({"image": None}, "image: is required but not set"),
        ({"headers": {"not a header": "x"}}, "headers."),
        (
            {"headers": {"Host": "x"}},
            "headers.Host: 'Host' is set by the collector with each request",
        ),
        ({"headers": {"content-length": "x"}}, "headers.content-length: 'content-length' is set by the collector"),
        ({"headers": {"Transfer-Encoding": "x"}}, "headers.Transfer-Encoding: "),
        ({"headers": {"authorization": "Bearer abc"}}, "headers.authorization: "),
    ],
)
def test_what_cannot_be_is_told_in_one_message(otlp: dict[str, Any], told: str) -> None:
    given = {key: value for key, value in {**OTLP, **otlp}.items() if value is not None}
    (complaint,) = complaints(with_change(stacks.existing(), "logs", {"otlp": given}))
    assert complaint.startswith(f"logs.otlp.{told}")
