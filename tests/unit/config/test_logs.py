"""`logs.otlp`: where logs go."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.monitoring import Otlp
from tests import stacks
from tests.stacks import with_change

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
