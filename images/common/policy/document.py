"""The policy as the stack file wants it: a JSON document, which `slurm/policy.py` of the stack makes and describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from images.common.policy.fields import ASSOCIATION, MARK, QOS, TAG, Attributes, Field, unset

ObjectKind = Literal["qos", "account", "association", "user", "reservation"]
Key = tuple[str, ...]
"""Name of an object; of an association the user, the account, and the partition or an empty string."""

VERSION: Final = 1
"""Of the document's format."""

DEFAULT_QOS: Final = "normal"
"""The QOS that Slurm itself makes."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that a policy is about, as it is or as it is wanted."""

    qos: Mapping[Key, Attributes] = field(default_factory=dict)
    accounts: Mapping[Key, Attributes] = field(default_factory=dict)
    associations: Mapping[Key, Attributes] = field(default_factory=dict)
    """Of users in accounts."""
    users: Mapping[Key, Attributes] = field(default_factory=dict)
    """Those with an association."""
    reservations: Mapping[Key, Attributes] = field(default_factory=dict)

    def of(self, kind: ObjectKind) -> Mapping[Key, Attributes]:
        """The objects of one kind."""
        kinds = {
            "qos": self.qos,
            "account": self.accounts,
            "association": self.associations,
            "user": self.users,
            "reservation": self.reservations,
        }
        return kinds[kind]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A document that was read."""

    wanted: State
    prune: bool


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that is not over."""

    id: str
    user: str
    account: str
    qos: str


def load(text: str) -> Policy:
    """Read a document. Raises ValueError if it is none."""
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise ValueError(f"the policy has format {document['version']}; this program reads {VERSION}")
        return Policy(wanted=_wanted(document), prune=bool(document["prune"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the policy document is not complete: {error!r}") from error


def _wanted(document: Mapping[str, Any]) -> State:
    users = document["users"]
    return State(
        qos={(name,): _qos(name, values) for name, values in document["qos"].items()},
        accounts={(name,): _account(values) for name, values in document["accounts"].items()},
        associations={
            (user, account, ""): _association(values)
            for user, entry in users.items()
            for account, values in entry["associations"].items()
        },
        users={
            (name,): {"default_account": entry["default_account"], "admin_level": entry["admin_level"]}
            for name, entry in users.items()
            if entry["associations"]
        },
        reservations={
            (name,): {key: _plain(value) for key, value in values.items()} | {"comment": MARK}
            for name, values in document["reservations"].items()
        },
    )


def _qos(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    read = _values(QOS, values)
    return read | {"description": f"{read['description'] or name}{TAG}".lower()}


def _account(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: str(values[key]).lower() for key in ("parent", "description", "organization")}
    return texts | _association(values)


def _association(values: Mapping[str, Any]) -> dict[str, Any]:
    return _values(ASSOCIATION, values) | {"comment": MARK}


def _values(fields: tuple[Field, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    blank = unset(fields)
    known = {key: _plain(value) for key, value in values.items() if key in blank}
    return blank | {key: blank[key] if value is None else value for key, value in known.items()}


def _plain(value: Any) -> Any:
    """Lists in the one order in which they are compared."""
    return tuple(sorted(value)) if isinstance(value, list) else value


def is_declared(kind: ObjectKind, attributes: Attributes) -> bool:
    """Whether an object that is there came from a stack file."""
    if kind == "qos":
        return str(attributes["description"]).endswith(TAG)
    return attributes.get("comment") == MARK


def untouched_default_qos() -> dict[str, Any]:
    """`normal` as Slurm makes it."""
    return unset(QOS) | {"description": "normal qos default"}
