"""`slurmstack:users`, `groups`, `sssd`: people who may log in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from config.base import Matching, Section
from config.names import SYSTEM_USERS, AccountName, GroupName, ObjectName
from config.sections.accounting import Association

_KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
FIRST_UID = 1000
"""Lowest uid of a person, as in Debian's `/etc/adduser.conf`. Lower ones belong to the system."""

LAST_UID = 59999
"""Highest uid of a person: 60000 and up belong to Debian packages, systemd's dynamic users and `nobody`."""


def _user_name(name: str) -> str:
    if name in SYSTEM_USERS:
        raise ValueError("is a user of the system; take another name")
    return name


def _ssh_public_key(line: str) -> str:
    if "PRIVATE KEY" in line:
        raise ValueError(
            "is a PRIVATE key. Never put one into a stack file; use the line of the .pub file, and replace this key"
        )
    words = line.split()
    kind = words[0] if words else ""
    if kind not in _KEY_TYPES or len(words) < 2 or "\n" in line.strip():
        raise ValueError(
            f"is not an SSH public key: one line 'TYPE BASE64 [COMMENT]' with one of the types {', '.join(_KEY_TYPES)}"
        )
    # Only who has a key waits for it: `--help` reads no stack file.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key  # noqa: PLC0415

    try:
        load_ssh_public_key(" ".join(words[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        message = f"is not an SSH public key: what is encoded is no complete {kind} key (was the line cut?)"
        raise ValueError(message) from None
    return line.strip()


UserName = Annotated[
    str,
    Matching(
        r"^[a-z_][a-z0-9_-]{0,31}$",
        "is not a user name: small letters, digits, '_' and '-', at most 32, beginning with a letter or '_'",
    ),
    AfterValidator(_user_name),
]
SshPublicKey = Annotated[str, AfterValidator(_ssh_public_key)]


def _names_to_associations(value: object) -> object:
    """A list of accounts is short for a map without shares and limits."""
    if not isinstance(value, tuple | list):
        return value
    if not all(isinstance(name, str) for name in value):
        raise ValueError("is no list of accounts' names; with shares and limits write a map: {ml: {fairshare: 2}}")
    return {name: {} for name in value}


class User(Section):
    """A person with a home in the jail."""

    uid: int = Field(ge=FIRST_UID, le=LAST_UID, strict=True)
    """Numeric user id, the same on all nodes and for ever: files belong to the number."""
    gid: int | None = Field(default=None, ge=FIRST_UID, le=LAST_UID, strict=True)
    """Numeric id of the user's primary group. Default: the uid, as a group of the user's own. The gid of a group in
    `slurmstack:groups` makes that group the primary one."""
    ssh_authorized_keys: tuple[SshPublicKey, ...] = ()
    """Public keys, each a line as in `~/.ssh/authorized_keys`. The user may add more in the own home."""
    shell: Annotated[
        str,
        Matching(
            r"^(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+$",
            "is not the path of a program: write it from '/' on and without '..', for example /bin/zsh",
        ),
    ] = "/bin/bash"
    """Login shell, a path inside the jail. Who has one that is not there cannot log in, until it is installed."""
    sudo: bool = Field(default=False, strict=True)
    """Whether the user may become root in the jail (`sudo`), for example to install packages for everyone."""
    groups: tuple[GroupName, ...] = ()
    """Further groups of the user: names in `slurmstack:groups`, or those of Debian and its usual packages, which are in
    the jail already (`video`, `docker`)."""
    accounts: Annotated[
        dict[AccountName, Association],
        BeforeValidator(
            _names_to_associations, json_schema_input_type=dict[AccountName, Association] | list[AccountName]
        ),
    ] = Field(default_factory=dict)
    """Accounts that the user's jobs may be booked on, with shares and limits: `{ml: {fairshare: 2}}`. Short: `[ml]`."""
    default_account: AccountName | None = None
    """Account of jobs that name none. Default: the first one."""
    admin_level: Literal["none", "operator", "administrator"] = "none"
    """Rights in Slurm itself, as sacctmgr(1) has them."""

    @property
    def own_gid(self) -> int:
        """Number of the user's first group."""
        return self.uid if self.gid is None else self.gid


class Group(Section):
    """A group in the jail."""

    gid: int = Field(ge=FIRST_UID, le=LAST_UID, strict=True)
    """Numeric id, the same on all nodes and for ever: files belong to the number."""


class Sssd(Section):
    """SSSD in all pods that have to know users, with the same configuration."""

    secret: ObjectName
    """Secret in the cluster's namespace with the key `sssd.conf`, and files that it names below /etc/sssd/secrets (each
    further key is one). It is read at the start of a pod."""
