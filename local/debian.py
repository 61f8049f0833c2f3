"""A Debian base image without a registry: debootstrap from the mirror that this machine's apt uses.

The mirror's address, proxies and certificates are the machine's own; none of them is in this repository, and only the
mirror's address ends up in the image (in /etc/apt/sources.list, where users of the jail need it).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalError
from local.tools import Tools

MIRROR_VARIABLE = "SLURMSTACK_DEBIAN_MIRROR"
SECURITY_VARIABLE = "SLURMSTACK_DEBIAN_SECURITY_MIRROR"
_LAYOUT = "1"
"""Part of the key; counted up when `BASE_SCRIPT` changes what it makes."""

_KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
_UNPUBLISHED = ("forky", "sid")
"""Suites in development: snapshots of them are used after their announced validity, and they have no security suite."""

_SECURED = ("trixie",)


@dataclass(frozen=True, kw_only=True)
class AptSettings:
    """What the machine's apt knows and the build needs."""

    mirror: str
    security_mirror: str = ""
    """Where security updates are; empty: a person does without them."""
    proxies: tuple[tuple[str, str], ...] = ()
    """(scheme, address) of Acquire::<scheme>::Proxy."""
    certificates: Path | None = None
    """File of Acquire::https::CaInfo."""


def read_apt_settings() -> AptSettings:
    """Ask the machine's apt; `$SLURMSTACK_DEBIAN_MIRROR` goes first, for machines that are not a Debian.

    A mirror `.../debian` has its security updates in `.../debian-security`; `$SLURMSTACK_DEBIAN_SECURITY_MIRROR` names
    another place, or `none`.
    """
    targets = parse_targets(
        _apt_output(
            "apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"
        )
    )
    configuration = _apt_output("apt-config", "dump")
    release = platform.freedesktop_os_release()
    codename = release.get("VERSION_CODENAME", "")
    mirror = os.environ.get(MIRROR_VARIABLE)
    ours = release["ID"] == "debian"
    if not mirror and ours:
        mirror = _first(targets, {codename, "stable"})
    if not mirror:
        raise LocalError(
            "this machine's apt sources name no Debian mirror, and the images' base is made from one",
            f"set {MIRROR_VARIABLE} to the address of a Debian mirror",
        )
    return AptSettings(
        mirror=mirror.rstrip("/"),
        security_mirror=_security_mirror(mirror, _first(targets, {f"{codename}-security"}) if ours else None),
        proxies=tuple(re.findall(r'^Acquire::(https?)::Proxy "([^"]+)";', configuration, re.MULTILINE | re.IGNORECASE)),
        certificates=_certificates(configuration),
    )


def _security_mirror(mirror: str, of_apt: str | None) -> str:
    if named := os.environ.get(SECURITY_VARIABLE):
        return "" if named == "none" else named.rstrip("/")
    beside = re.sub(r"/debian/?$", "/debian-security", mirror)
    return beside if os.environ.get(MIRROR_VARIABLE) or not of_apt else of_apt.rstrip("/")


def parse_targets(text: str) -> list[tuple[str, str, str]]:
    """Read `URI|RELEASE|COMPONENT` lines."""
    fields = (line.split("|") for line in text.splitlines())
    return [(parts[0], parts[1], parts[2]) for parts in fields if len(parts) == 3]


def _first(targets: Iterable[tuple[str, str, str]], releases: set[str]) -> str | None:
    return next((uri for uri, release, component in targets if component == "main" and release in releases), None)


def _certificates(configuration: str) -> Path | None:
    found = re.search(r'^Acquire::https::CaInfo "([^"]+)";', configuration, re.MULTILINE | re.IGNORECASE)
    return Path(found[1]) if found and Path(found[1]).is_file() else None


def _apt_output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    return done.stdout


def sources_list(suite: str, apt: AptSettings) -> str:
    """Give the content of /etc/apt/sources.list in the image."""
    lines = [f"deb {apt.mirror} {suite} main"]
    if suite in _SECURED and apt.security_mirror:
        lines.append(f"deb {apt.security_mirror} {suite}-security main")
    return "\n".join(lines) + "\n"


def base_key(suite: str, apt: AptSettings) -> str:
    """Name a base image by what it is made from."""
    text = "\0".join([_LAYOUT, suite, apt.mirror, *filter(None, [apt.security_mirror]), os.uname().machine])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def base_environment(suite: str, apt: AptSettings, tools: Tools) -> dict[str, str]:
    """Give what `BASE_SCRIPT` reads from its environment."""
    scripts = Path(tools.env().get("DEBOOTSTRAP_DIR", "/usr/share/debootstrap")) / "scripts"
    sources = sources_list(suite, apt)
    env = {
        "SUITE": suite,
        "MIRROR": apt.mirror,
        "SOURCES": sources,
        "KEYRING": str(tools.file(_KEYRING)),
        "LC_ALL": "C.UTF-8",
        # A suite younger than this machine's debootstrap is made with the script of the development suite.
        "SCRIPT": "" if (scripts / suite).exists() else str(scripts / "sid"),
        "VALIDITY": 'Acquire::Check-Valid-Until "false";\n' if suite in _UNPUBLISHED else "",
        "INCLUDE": "--include=ca-certificates" if "https:" in sources else "",
    }
    for scheme, address in apt.proxies:
        env[f"{scheme}_proxy"] = address
    if apt.certificates:
        env["SSL_CERT_FILE"] = str(apt.certificates)
    return env


BASE_SCRIPT = r"""
debootstrap --variant=minbase --force-check-gpg --keyring="$KEYRING" $INCLUDE "$SUITE" "$ROOT" "$MIRROR" $SCRIPT
printf '%s' "$SOURCES" > "$ROOT/etc/apt/sources.list"
printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod 755 "$ROOT/usr/sbin/policy-rc.d"
printf 'force-unsafe-io\n' > "$ROOT/etc/dpkg/dpkg.cfg.d/slurmstack-speed"
printf '%sAcquire::Languages "none";\nAPT::Install-Recommends "false";\n' "$VALIDITY" \
  > "$ROOT/etc/apt/apt.conf.d/10slurmstack"
printf '%s\n' 'path-exclude /usr/share/doc/*' 'path-include /usr/share/doc/*/copyright' \
  'path-exclude /usr/share/locale/*' 'path-include /usr/share/locale/locale.alias' \
  > "$ROOT/etc/dpkg/dpkg.cfg.d/slurmstack-lean"
rm -rf "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/cache/apt/* "$ROOT"/var/cache/debconf/*-old
rm -rf "$ROOT"/var/log/*.log "$ROOT"/var/log/apt
rm -rf "$ROOT"/usr/share/doc/*/changelog* "$ROOT"/usr/share/man/* "$ROOT"/usr/share/locale/*
: > "$ROOT/etc/hostname"
: > "$ROOT/etc/resolv.conf"
: > "$ROOT/etc/machine-id"
"""
"""Shell: fills $ROOT. Nothing starts services in an image (policy-rc.d); the rest Docker's Debian image sets, too."""


def write_build_settings(apt: AptSettings, directory: Path) -> list[str]:
    """Write settings of apt for the RUN steps; returns the volumes to mount.

    The Containerfile's steps read them through APT_CONFIG; they are not in the image. Sources that do not answer fail
    the build: without that, an image would be made silently without security updates.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lines = ['APT::Update::Error-Mode "any";']
    lines += [f'Acquire::{scheme}::Proxy "{address}";' for scheme, address in apt.proxies]
    if apt.certificates:
        shutil.copyfile(apt.certificates, directory / "ca.crt")
        lines.append(f'Acquire::https::CaInfo "{BUILD_SETTINGS}/ca.crt";')
    (directory / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{directory}:{BUILD_SETTINGS}:ro"]


BUILD_SETTINGS = "/run/slurmstack-build"
"""Where RUN steps see them."""
