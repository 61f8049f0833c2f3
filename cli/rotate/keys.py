"""The keys that can be rotated, and one rotation's state, which is in the cluster: cut short, the next one goes on.

What is done, in this order: the annotation ROTATING and the new value are written into the Secret of all generated
values, at once; the Secret that pods read is made from it; kubelet brings that into their files; whoever reads it only
at its start is started again; the annotation goes. No `up` is made while it is there. All steps can be done again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cli.change.owner import ROTATING
from cli.errors import Failure, Refused
from cli.kubectl.client import FIELD_MANAGER, Kubectl
from components.secrets import DATABASE_PASSWORD_BYTES, JWT_KEY_BYTES, MUNGE_KEY_BYTES
from slurm.certificates import SEED_BYTES, ed25519_private_key_pem
from slurm.names import GENERATED


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of the cluster, as components/secrets.py makes it."""

    name: str
    """As the command takes it."""
    value: str
    """End of the name of its generated value."""
    length: int
    """Bytes of that."""
    secret: str
    file: str
    path: str
    """Where containers have it."""
    content: Callable[[str], bytes]
    """The file, from the value in Base64."""


KEYS = {
    key.name: key
    for key in (
        Key(
            name="munge", value="munge", length=MUNGE_KEY_BYTES, secret="munge-key", file="munge.key",  # noqa: S106
            path="/secrets/munge/munge.key", content=base64.b64decode,
        ),
        Key(
            name="jwt", value="jwt", length=JWT_KEY_BYTES, secret="jwt-key", file="jwt_hs256.key",  # noqa: S106
            path="/secrets/jwt/jwt_hs256.key", content=base64.b64decode,
        ),
        Key(
            name="database-password", value="database", length=DATABASE_PASSWORD_BYTES, secret="database-password",  # noqa: S106
            file="password", path="/secrets/database/password", content=str.encode,
        ),
        Key(
            name="host-keys", value="host-seed", length=SEED_BYTES, secret="ssh-host-keys",  # noqa: S106
            file="ssh_host_ed25519_key", path="/secrets/ssh/ssh_host_ed25519_key",
            content=lambda value: ed25519_private_key_pem(value).encode(),
        ),
    )
}  # fmt: skip
"""By the names that the command takes."""


class Rotation:
    """One key of one cluster that gets another value."""

    def __init__(self, kubectl: Kubectl, namespace: str, key: Key) -> None:
        self._kubectl = kubectl
        self.namespace = namespace
        self.key = key
        self._name = f"{namespace}-secrets-{key.value}"
        self._value = ""
        self._seen: tuple[str, bool] | None = None
        """At the first look: the value, and whether a rotation of it was not finished."""

    @property
    def value(self) -> str:
        """What the new file is made from, in Base64."""
        return self._value

    @property
    def content(self) -> bytes:
        """The new file."""
        return self.key.content(self._value)

    @property
    def digest(self) -> str:
        """SHA-256 of the new file, by which pods are asked whether they have it."""
        return hashlib.sha256(self.content).hexdigest()

    def refuse(self) -> None:
        """Raise Failure where this key cannot be rotated, or another rotation was not finished."""
        self._read()

    @property
    def is_begun(self) -> bool:
        """Whether an earlier one of this key was not finished."""
        return ROTATING in (self._read()["metadata"].get("annotations") or {})

    def begin(self, after: str = "") -> bool:
        """Make the new value, and write it where pods read it. Returns whether an earlier rotation goes on.

        Raises Refused if others have rotated the key since the first look. `after`: who had the cluster's lock.
        """
        found = self._read()
        annotations = found["metadata"].setdefault("annotations", {})
        goes_on = ROTATING in annotations
        if not goes_on and self._seen != (found["data"][self._name], False):
            raise Refused(
                f"{self.key.name} has just been rotated, by {after or 'somebody else'}",
                hint="run this again if it should be rotated once more",
            )
        if not goes_on:
            found["data"][self._name] = _encoded(base64.b64encode(secrets.token_bytes(self.key.length)))
            annotations[ROTATING] = self.key.name
            self._replace(found)
        self._value = base64.b64decode(found["data"][self._name]).decode()
        change = {"data": {self.key.file: _encoded(self.content)}}
        self._kubectl.run(
            "patch", "secret", self.key.secret, "-n", self.namespace, "--type=merge", "--patch-file=/dev/stdin",
            f"--field-manager={FIELD_MANAGER}", stdin=json.dumps(change),
        )  # fmt: skip
        return goes_on

    def finish(self) -> None:
        """All have the new key."""
        found = self._read()
        found["metadata"].get("annotations", {}).pop(ROTATING, None)
        self._replace(found)

    def _read(self) -> dict[str, Any]:
        found = self._kubectl.items("secret", GENERATED, "-n", self.namespace)
        if not found or self._name not in found[0].get("data", {}):
            raise Failure(
                f"there is no generated {self.key.name} in the namespace {self.namespace} (Secret {GENERATED})",
                hint="`slurmstack up` makes the cluster; what Pulumi's engine or `render` made: "
                'docs/rotate-keys.md, "With Pulumi, or render"',
            )
        other = (found[0]["metadata"].get("annotations") or {}).get(ROTATING)
        if other not in {None, self.key.name}:
            raise Failure(
                f"the rotation of {other} was not finished",
                hint=f"`slurmstack rotate {other}` first: it goes on with it",
            )
        self._seen = self._seen or (found[0]["data"][self._name], other is not None)
        return found[0]

    def _replace(self, secret: dict[str, Any]) -> None:
        """By its version: whoever has changed it meanwhile is not overwritten."""
        secret["metadata"].pop("managedFields", None)
        self._kubectl.run("replace", "-f", "-", f"--field-manager={FIELD_MANAGER}", stdin=json.dumps(secret))


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
