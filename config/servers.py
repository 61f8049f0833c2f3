"""Servers that others run, and images that they keep: what a stack file may call them."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from config.base import check_host, matching

_HOST = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?"
_PART = r"/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
"""Of an image's path, as all registries take it (the grammar of `distribution/reference`)."""

_REGISTRY = re.compile(rf"^{_HOST}({_PART})*$")
_IMAGE = re.compile(rf"^{_HOST}({_PART})+(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$")

_LONGEST = 255
"""Characters of an image's name without tag and digest (`distribution/reference`)."""


def address_range(value: str) -> str:
    """A range as Kubernetes takes it: without the name of an interface. Raises ValueError."""
    if "%" in value:
        raise ValueError(f"{value!r} has the name of an interface")
    return str(ip_network(value))


def check_server(url: str) -> SplitResult:
    """A URL's parts if a server can be there, else ValueError: what no host can be called, no port."""
    address = urlsplit(url)
    _, _, behind = address.netloc.rpartition("]")  # an IPv6 address has colons of its own
    _, colon, port = behind.partition(":")
    if colon and not (port.isascii() and port.isdecimal() and len(port) < 6 and 1 <= int(port) <= 65535):
        raise ValueError(f"has the port {port or '(none)'}, which there is not: 1 to 65535")
    check_host(address.hostname or "")
    return address


def _of_a_registry(name: str) -> str:
    check_server(f"//{name}")
    return name


def _fixed(image: str) -> str:
    name, _, digest = image.partition("@")
    folder, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    if len(f"{folder}/{last}") > _LONGEST:
        raise ValueError(f"is longer than the {_LONGEST} characters that the name of an image may have")
    if not tag and not digest:
        raise ValueError("has neither tag nor digest, and so could be another one tomorrow; write NAME:TAG")
    return image


Host = Annotated[str, AfterValidator(check_host), Field(json_schema_extra={"pattern": r"^[A-Za-z0-9.:-]{1,253}$"})]
"""Name of a host, or an address."""

Registry = Annotated[
    str,
    matching(_REGISTRY, "is not how an image's name begins: a host, with :PORT and /PATH if need be, without https://"),
    AfterValidator(_of_a_registry),
    Field(json_schema_extra={"pattern": _REGISTRY.pattern}),
]

Image = Annotated[
    str,
    matching(_IMAGE, "is not the full name of an image: HOST/PATH/NAME:TAG, all but the tag in small letters"),
    AfterValidator(_of_a_registry),
    AfterValidator(_fixed),
    Field(json_schema_extra={"pattern": _IMAGE.pattern}),
]
"""Full name of an image that is used as it is."""
