"""How sshd decides who may log in, beyond keys, and what a session may do: PAM."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from images.common.files import write_atomically

PAM_SERVICE: Final = Path("/etc/pam.d/sshd")
LIMITS_FILE: Final = Path("/run/slurmstack/user-limits.conf")
OUR_MODULE: Final = "/usr/lib/slurmstack/pam_jail.so"
"""images/login/native."""

LIBEXEC: Final = "/usr/libexec/slurmstack"
LOGINS: Final = "maxlogins"
"""Counted by our own program: pam_limits reads utmp, which sshd does not write in a container."""

SHARES: Final = ("total_memory", "total_cpus")
"""What the user's cgroup limits (images/login/shares.py)."""

RESOURCES: Final = {
    "nproc": (resource.RLIMIT_NPROC, 1),
    "nofile": (resource.RLIMIT_NOFILE, 1),
    "as": (resource.RLIMIT_AS, 1024),
    "cpu": (resource.RLIMIT_CPU, 60),
}
"""Limits by their names in limits.conf(5): the kernel's resource, and in how many of its units they are counted."""


def parse_limits(text: str) -> dict[str, int]:
    """Limits by name from `nproc=200 as=4194304`. Raises ValueError."""
    limits = {name: int(value) for name, _, value in (word.partition("=") for word in text.split())}
    if unknown := limits.keys() - {*RESOURCES, LOGINS, *SHARES}:
        raise ValueError(f"USER_LIMITS: unknown limits {', '.join(sorted(unknown))}")
    return limits


def _room_for_data() -> str:
    """For sessions, what a connection does not have (connection.sh): all that the pod itself may."""
    own = resource.getrlimit(resource.RLIMIT_DATA)[1]
    return f"* soft data {'unlimited' if own == resource.RLIM_INFINITY else own // 1024}\n"


def limits_file(limits: Mapping[str, int], log: Callable[[str], None]) -> str:
    """limits.conf(5) for everybody but root, each limit at most what the pod itself may have.

    pam_limits refuses a login when it cannot set a limit, and raising one needs a capability that the pod lacks.
    """
    lines = [
        "# Written by slurmstack from slurmstack:login.user_limits; `*` is everybody but root.\n",
        _room_for_data(),
    ]
    for name, value in limits.items():
        if name not in RESOURCES:
            continue
        kind, unit = RESOURCES[name]
        own = resource.getrlimit(kind)[1]
        allowed = value if own == resource.RLIM_INFINITY else min(value, own // unit)
        if allowed != value:
            log(f"login.user_limits: {name} is {allowed} instead of {value}: more is not allowed to this pod")
        lines.append(f"* - {name} {allowed}\n")
    return "".join(lines)


def pam_service(limits: Mapping[str, int], *, sssd: bool) -> str:
    """The PAM service of sshd: only keys authenticate, so it is about accounts and sessions.

    Our own module refuses accounts that are locked, pam_unix those that are expired, as those of removed users are.
    Users of the jail's own files are not SSSD's business; for all others its access rules count, and their homes are
    made when they first come.
    """
    lines = ["auth required pam_deny.so", "password required pam_deny.so"]
    if LOGINS in limits:
        lines.append(f"account required pam_exec.so quiet stdout {LIBEXEC}/admit {limits[LOGINS]}")
    lines += [f"account required {OUR_MODULE}", "account required pam_unix.so"]
    if sssd:
        lines += ["account sufficient pam_localuser.so file=/jail/etc/passwd", "account required pam_sss.so"]
    lines.append(f"session required pam_limits.so conf={LIMITS_FILE}")
    if sssd:
        lines.append(f"session optional pam_exec.so quiet {LIBEXEC}/make-home")
    # Last: our programs before it work outside the jail.
    lines.append(f"session required {OUR_MODULE}")
    return "".join(f"{line}\n" for line in lines)


def sshd_options(*, sssd: bool) -> list[str]:
    """Arguments of sshd that win over its file.

    The program that asks SSSD runs outside the jail. As nobody, it could be looked into by root in the jail, who may
    become nobody; sshd's own capabilities keep that from it.
    """
    options = ["AuthorizedKeysCommand=/usr/bin/sss_ssh_authorizedkeys", "AuthorizedKeysCommandUser=root"]
    return [part for option in options for part in ("-o", option)] if sssd else []


def set_up_access(limits: Mapping[str, int], log: Callable[[str], None], *, sssd: bool) -> list[str]:
    """Write what PAM reads; returns the further arguments of sshd."""
    LIMITS_FILE.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(LIMITS_FILE, limits_file(limits, log))
    write_atomically(PAM_SERVICE, pam_service(limits, sssd=sssd))
    return sshd_options(sssd=sssd)
