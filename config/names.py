"""Names that several sections refer to."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from config.base import check_dns_label, matching

_NAMES = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Of DNS, with dots between them: names of objects, and what stands before those of labels."""

LABEL_KEY = re.compile(rf"^((?=[^/]{{1,253}}/){_NAMES}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?$")
"""Key of a label, an annotation or a taint of Kubernetes."""

LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")
"""Value of a label or a taint of Kubernetes; it may be empty."""


LabelKey = Annotated[
    str,
    matching(
        LABEL_KEY,
        "is not a key that Kubernetes takes: [prefix/]name, the name of at most 63 letters, digits, '-', '_' and '.', "
        "with a letter or digit at both ends",
    ),
    Field(json_schema_extra={"pattern": LABEL_KEY.pattern}),
]

LabelValue = Annotated[
    str,
    matching(
        LABEL_VALUE,
        "is not a value that Kubernetes takes: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at "
        "both ends",
    ),
    Field(json_schema_extra={"pattern": LABEL_VALUE.pattern}),
]

_SECRET = re.compile(rf"^(?=.{{1,253}}$){_NAMES}$")
_NAMESPACE = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_ACCOUNT = re.compile(r"^[a-z0-9_][a-z0-9_.-]{0,62}$")


_PERSON = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}$")
_GROUP = re.compile(
    r"""^[^\s\x00-\x1f\x7f,="'#\\]([^\x00-\x1f\x7f-\x9f\u2028\u2029,="'#\\]{0,253}[^\s\x00-\x1f\x7f,="'#\\])?$"""
)


DirectoryUser = Annotated[
    str,
    matching(_PERSON, "is not the name of a user: letters, digits, '_', '.', '@' and '-'"),
    Field(json_schema_extra={"pattern": _PERSON.pattern}),
]
"""Somebody who may be of a directory, which has names that a stack file could not declare."""

DirectoryGroup = Annotated[
    str,
    matching(_GROUP, "is not the name of a group: without control characters, commas, quotes, '=', '#' and '\\'"),
    Field(json_schema_extra={"pattern": _GROUP.pattern}),
]
"""A group that may be of a directory: `domain users`."""

SecretName = Annotated[
    str,
    matching(_SECRET, "is not the name of a Secret: small letters, digits and '-', with '.' between them, at most 253"),
    Field(json_schema_extra={"pattern": _SECRET.pattern}),
]
"""Name of a Secret in the cluster's namespace."""

PriorityClassName = Annotated[
    str,
    matching(_SECRET, "is not the name of a PriorityClass: small letters, digits, '-' and '.', at most 253"),
    Field(json_schema_extra={"pattern": _SECRET.pattern}),
]
"""Name of a PriorityClass that others have made."""

StorageClassName = Annotated[
    str,
    matching(_SECRET, "is not the name of a StorageClass: small letters, digits, '-' and '.', at most 253"),
    Field(json_schema_extra={"pattern": _SECRET.pattern}),
]
"""Name of a StorageClass that others have made."""

NamespaceName = Annotated[
    str,
    matching(_NAMESPACE, "is not the name of a namespace: small letters, digits and '-', at most 63"),
    Field(json_schema_extra={"pattern": _NAMESPACE.pattern}),
]
"""Name of a namespace that others have made."""


def _not_root(name: str) -> str:
    if name == "root":
        raise ValueError("is the root of Slurm's own tree of accounts; take another name")
    return name


QosName = Annotated[
    str,
    matching(_ACCOUNT, "is no name that Slurm keeps as it is: small letters, digits, '_', '.' and '-', at most 63"),
    Field(json_schema_extra={"pattern": _ACCOUNT.pattern}),
]
AccountName = Annotated[QosName, AfterValidator(_not_root)]


def _group_name(name: str) -> str:
    check_dns_label(name.replace("_", "-"), longest=32)
    return name


GroupName = Annotated[str, AfterValidator(_group_name)]
