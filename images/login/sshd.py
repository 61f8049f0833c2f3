"""sshd: users log in to the jail. It starts when the jail is whole.

PAM decides who may log in, beyond keys, and what a session may do. Each user has a cgroup for all of the user's
processes on the login node. Without it, one user's program that needs all memory has others' sessions ended: by the
kernel, which ends the largest process, or by kubelet, which on machines with version 2 of cgroups wants the whole
container ended with it.

    /users        all users together: what the login node has but an eighth (of a small one more), which is for sshd
    /users/1000   one user; each has the same weight when they compete for CPUs (images/login/native/pam_jail.c)
    /sshd         what listens, who is not logged in yet, and what kubelet starts in the container
"""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from images.common.boundary import (
    RUN_SLURM,
    own_directory,
    protect_cgroups,
    seal_root,
    settle_shared,
    without_set_up,
)
from images.common.cgroups import CannotConfineError, memory_limit, take_subtree
from images.common.command import run
from images.common.files import HOST_KEY, install_secret, write_atomically
from images.common.jail_roots import hidden
from images.common.jail_view import LOGIN_BINDS, Bind, bind_into_jail, sssd_binds, user_volumes
from images.common.log import Log
from images.common.process import become, program, required_env
from images.common.readiness import wait_for_controller, wait_for_jail, wait_for_munge

PAM_SERVICE: Final = Path("/etc/pam.d/sshd")
LIMITS_FILE: Final = Path("/run/slurmstack/user-limits.conf")
OUR_MODULE: Final = "/usr/lib/slurmstack/pam_jail.so"
"""images/login/native."""

LIBEXEC: Final = "/usr/libexec/slurmstack"
KEYS_OF_SSSD: Final = (
    "-o", "AuthorizedKeysCommand=/usr/bin/sss_ssh_authorizedkeys", "-o", "AuthorizedKeysCommandUser=root",
)  # fmt: skip
"""Options of sshd that win over its file. The program that asks SSSD runs outside the jail. As nobody, it could be
looked into by root in the jail, who may become nobody; sshd's own capabilities keep that from it."""

RESOURCES: Final = {
    "nproc": (resource.RLIMIT_NPROC, 1),
    "nofile": (resource.RLIMIT_NOFILE, 1),
    "as": (resource.RLIMIT_AS, 1024),
    "cpu": (resource.RLIMIT_CPU, 60),
}
"""Limits by their names in limits.conf(5): the kernel's resource, and in how many of its units they are counted."""

DAEMONS: Final = "sshd"
USERS: Final = "users"

FILE: Final = Path("/run/slurmstack/shares")
"""A line for each file of a user's cgroup, with what is to be in it. Where it is missing, there are no cgroups."""

_SEVERAL_LOGINS: Final = 160 * 2**20
"""Enough for some thirty at once."""

_PERIOD_US: Final = 100_000
"""Of `cpu.max`: the kernel's own default."""

SECRET_KEY: Final = Path("/secrets/ssh/ssh_host_ed25519_key")
CONFIG: Final = Path("/usr/lib/slurmstack/images/login/sshd_config")


def parse_limits(text: str) -> dict[str, int]:
    """Limits by name from `nproc=200 as=4194304`."""
    return {name: int(value) for name, _, value in (word.partition("=") for word in text.split())}


def limits_file(limits: Mapping[str, int], log: Callable[[str], None]) -> str:
    """limits.conf(5) for everybody but root, each limit at most what the pod itself may have.

    pam_limits refuses a login when it cannot set a limit, and raising one needs a capability that the pod lacks.
    """
    lines = ["# Written by slurmstack from slurmstack:login.user_limits; `*` is everybody but root.\n"]
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


def pam_service(*, sssd: bool, access: str = "") -> str:
    """The PAM service of sshd: only keys authenticate, so it is about accounts and sessions.

    `access`: a program of ours that has a say in who gets in.

    Our own module refuses accounts that are locked, as those of removed users are; pam_unix those that are expired.
    Users of the jail's own files are not SSSD's business; for all others its access rules count, and their homes are
    made when they first come.
    """
    lines = ["auth required pam_deny.so", "password required pam_deny.so"]
    lines += [f"account required {OUR_MODULE}", "account required pam_unix.so"]
    if access:
        lines.append(f"account required pam_exec.so quiet stdout {LIBEXEC}/{access}")
    if sssd:
        lines += ["account sufficient pam_localuser.so file=/jail/etc/passwd", "account required pam_sss.so"]
    lines.append(f"session required pam_limits.so conf={LIMITS_FILE}")
    if sssd:
        lines.append(f"session optional pam_exec.so quiet {LIBEXEC}/make-home")
    # Last: our programs before it work outside the jail.
    lines.append(f"session required {OUR_MODULE}")
    return "".join(f"{line}\n" for line in lines)


def set_up_shares(limits: Mapping[str, int], log: Callable[[str], None]) -> None:
    """Have each user's sessions share a cgroup, where the machine lets the pod make some.

    `total_memory` in bytes, by default half of what there is for all; `total_cpus` in thousandths, by default any.
    """
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.unlink(missing_ok=True)
    own = memory_limit()
    memory = None if own is None else own - max(own // 8, min(_SEVERAL_LOGINS, own // 4))
    try:
        take_subtree(DAEMONS, USERS, memory, run)
    except CannotConfineError as error:
        log(f"users share this login node's CPU and memory as they come: {error}")
        return
    write_atomically(FILE, "".join(f"{name} {value}\n" for name, value in _shares(limits, memory).items()))


def _shares(limits: Mapping[str, int], memory: int | None) -> dict[str, str]:
    total = limits.get("total_memory") or (None if memory is None else memory // 2)
    cpus = limits.get("total_cpus")
    return {
        **({"memory.max": str(total)} if total else {}),
        **({"cpu.max": f"{cpus * _PERIOD_US // 1000} {_PERIOD_US}"} if cpus else {}),
    }


def prepare(jail: Path, binds: Sequence[Bind], log: Callable[[str], None]) -> None:
    """Everything that sshd needs."""
    settle_shared()
    install_secret("the host key", SECRET_KEY, HOST_KEY, log, mode=0o600)
    wait_for_munge(log)
    wait_for_jail(jail, log)
    volumes = user_volumes(os.environ.get("MOUNTS", ""))
    bind_into_jail(jail, (*binds, *hidden(), *sssd_binds(), *volumes), log)
    protect_cgroups(jail, run)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def sackd() -> None:
    """Entry point of sackd: it fetches Slurm's configuration for the commands of the pod, and keeps it up to date."""
    with program("sackd") as log:
        user = pwd.getpwnam("slurm")
        own_directory(RUN_SLURM, user.pw_uid, user.pw_gid)
        controller = required_env("CONTROLLER")
        wait_for_munge(log)
        wait_for_controller(controller, log)
        become(["/usr/sbin/sackd", "-D", "--conf-server", controller], log, user=user)


def serve(log: Log, *, config: Path, binds: Sequence[Bind] = LOGIN_BINDS, access: str = "") -> NoReturn:
    """Become sshd. `access`: as for `pam_service`. Raises CannotGoOnError."""
    limits = parse_limits(os.environ.get("USER_LIMITS", ""))
    prepare(Path(os.environ.get("JAIL", "/jail")), binds, log)
    set_up_shares(limits, log)
    sssd = bool(os.environ.get("SSSD_PIPES"))
    write_atomically(LIMITS_FILE, limits_file(limits, log))
    write_atomically(PAM_SERVICE, pam_service(sssd=sssd, access=access))
    seal_root(run)
    options = KEYS_OF_SSSD if sssd else ()
    become(without_set_up(["/usr/sbin/sshd", "-D", "-e", "-f", str(config), *options], os.getpid()), log)


def main() -> None:
    """Entry point."""
    with program("sshd") as log:
        sackd = pwd.getpwnam("slurm")
        own_directory(RUN_SLURM, sackd.pw_uid, sackd.pw_gid)
        serve(log, config=CONFIG)
