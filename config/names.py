"""Names that a stack file may have: objects of Kubernetes, users and groups, hosts, images."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from config.base import Matching

_NAMES = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Of DNS, with dots between them: names of objects, and what stands before those of labels."""

LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"

LabelKey = Annotated[
    str,
    Matching(
        rf"^((?=[^/]{{1,253}}/){_NAMES}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?$",
        "is not a key that Kubernetes takes: [prefix/]name, the name of at most 63 letters, digits, '-', '_' and '.', "
        "with a letter or digit at both ends",
    ),
]
"""Key of a label, an annotation or a taint of Kubernetes."""

LabelValue = Annotated[
    str,
    Matching(
        LABEL_VALUE,
        "is not a value that Kubernetes takes: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at "
        "both ends",
    ),
]
"""Value of a label or a taint of Kubernetes; it may be empty."""

_OBJECT = rf"^(?=.{{1,253}}$){_NAMES}$"

ObjectName = Annotated[
    str,
    Matching(_OBJECT, "is not the name of an object of Kubernetes: small letters, digits, '-' and '.', at most 253"),
]
"""Name of a Secret in the cluster's namespace, or of a class that others have made."""

NamespaceName = Annotated[
    str,
    Matching(
        r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        "is not the name of a namespace: small letters, digits and '-', at most 63",
    ),
]
"""Name of a namespace that others have made."""

DirectoryGroup = Annotated[
    str,
    Matching(
        r"""^[^\s\x00-\x1f\x7f,="'#\\]([^\x00-\x1f\x7f-\x9f\u2028\u2029,="'#\\]{0,253}[^\s\x00-\x1f\x7f,="'#\\])?$""",
        "is not the name of a group: without control characters, commas, quotes, '=', '#' and '\\'",
    ),
]
"""A group that may be of a directory: `domain users`."""

QosName = Annotated[
    str,
    Matching(
        r"^[a-z0-9_][a-z0-9_.-]{0,62}$",
        "is no name that Slurm keeps as it is: small letters, digits, '_', '.' and '-', at most 63",
    ),
]


def _not_root(name: str) -> str:
    if name == "root":
        raise ValueError("is the root of Slurm's own tree of accounts; take another name")
    return name


AccountName = Annotated[QosName, AfterValidator(_not_root)]


def dns_label(*, longest: int, also: str = "-") -> AfterValidator:
    """A check of a DNS label of at most `longest` characters that begins with a letter. `also`: as good as a `-`."""

    def check(name: str) -> str:
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name.replace(also, "-")):
            raise ValueError(
                "is not a DNS label: use small letters, digits and '-', begin with a letter and do not end with '-'"
            )
        if len(name) > longest:
            raise ValueError(
                f"has {len(name)} characters; {longest} at most, since longer names would be cut and could collide"
            )
        return name

    return AfterValidator(check)


GroupName = Annotated[str, dns_label(longest=32, also="_")]


Host = Annotated[
    str,
    Matching(
        r"^(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$",
        "is neither the name of a host nor an address, without a port",
    ),
]
"""Name of a host, or an address."""


def check_server(url: str) -> str:
    """The URL, or ValueError if its port or its IPv6 address is none."""
    port_of(url)
    return url


def port_of(url: str) -> int:
    """TCP port of a server: as written, else that of the scheme."""
    address = urlsplit(url)
    return address.port or (443 if address.scheme == "https" else 80)


def address_range(value: str) -> str:
    """A range as Kubernetes takes it: without the name of an interface. Raises ValueError."""
    if "%" in value:
        raise ValueError(f"{value!r} has the name of an interface")
    return str(ip_network(value))


def _cidr(value: str) -> str:
    try:
        return address_range(value)
    except ValueError as error:
        raise ValueError(f"is not an address range such as 203.0.113.0/24: {error}") from None


Cidr = Annotated[str, AfterValidator(_cidr)]
"""An address range such as `203.0.113.0/24`."""

_REGISTRY = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?"
_PART = r"/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
"""Of an image's path, as all registries take it (the grammar of `distribution/reference`)."""


def _fixed(image: str) -> str:
    if "@" not in image and ":" not in image.rpartition("/")[2]:
        raise ValueError("has neither tag nor digest, and so could be another one tomorrow; write NAME:TAG")
    return image


Registry = Annotated[
    str,
    Matching(
        rf"^{_REGISTRY}({_PART})*$",
        "is not how an image's name begins: a host, with :PORT and /PATH if need be, without https://",
    ),
]

Image = Annotated[
    str,
    Matching(
        rf"^{_REGISTRY}({_PART})+(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$",
        "is not the full name of an image: HOST/PATH/NAME:TAG, all but the tag in small letters",
    ),
    AfterValidator(_fixed),
]
"""Full name of an image that is used as it is."""

SYSTEM_USERS = frozenset({
    # Debian's base-passwd
    "root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data",
    "backup", "list", "irc", "_apt", "nobody",
    # packages and programs in our images
    "slurm", "slurmrestd", "munge", "mysql", "sshd", "sssd", "messagebus", "systemd-network", "systemd-timesync",
})  # fmt: skip
"""Names that no person can have."""

BASE_GROUPS = frozenset({
    "root", "daemon", "bin", "sys", "adm", "tty", "disk", "lp", "mail", "news", "uucp", "man", "proxy", "kmem",
    "dialout", "fax", "voice", "cdrom", "floppy", "tape", "sudo", "audio", "dip", "www-data", "backup", "operator",
    "list", "irc", "src", "shadow", "utmp", "video", "sasl", "plugdev", "staff", "games", "users", "nogroup",
    "slurm", "slurmrestd", "munge", "mysql", "sssd", "messagebus",
})  # fmt: skip
"""Groups of Debian's base-passwd and of our images: their numbers are below 1000, and nobody can declare them."""

PACKAGE_GROUPS = frozenset({
    "docker", "fuse", "i2c", "incus", "input", "kvm", "libvirt", "lxd", "netdev", "podman", "render", "sgx",
    "systemd-journal", "ssl-cert", "wireshark",
})  # fmt: skip
"""Groups that well-known Debian packages make in the jail when they are installed there, with numbers below 1000."""
