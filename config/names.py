"""Names that several sections refer to."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from config.base import check_dns_label

_SECRET = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_ACCOUNT = re.compile(r"^[a-z0-9_][a-z0-9_.-]{0,62}$")


def secret_name(name: str) -> str:
    """The name if Kubernetes accepts it for a Secret, else ValueError."""
    if not _SECRET.fullmatch(name):
        raise ValueError("is not the name of a Secret: small letters, digits, '-' and '.', at most 253")
    return name


SecretName = Annotated[str, AfterValidator(secret_name), Field(json_schema_extra={"pattern": _SECRET.pattern})]
"""Name of a Secret in the cluster's namespace."""


def _policy_name(name: str) -> str:
    if not _ACCOUNT.fullmatch(name):
        raise ValueError("is no name that Slurm keeps as it is: small letters, digits, '_', '.' and '-', at most 63")
    return name


def _account_name(name: str) -> str:
    if name == "root":
        raise ValueError("is the root of Slurm's own tree of accounts; take another name")
    return _policy_name(name)


_POLICY_PATTERN = Field(json_schema_extra={"pattern": _ACCOUNT.pattern})
AccountName = Annotated[str, AfterValidator(_account_name), _POLICY_PATTERN]
QosName = Annotated[str, AfterValidator(_policy_name), _POLICY_PATTERN]


def _group_name(name: str) -> str:
    check_dns_label(name.replace("_", "-"), longest=32)
    return name


GroupName = Annotated[str, AfterValidator(_group_name)]
