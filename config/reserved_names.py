"""Users and groups that belong to the operating system in our images and in the jail."""

from __future__ import annotations

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
