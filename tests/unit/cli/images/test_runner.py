"""What tools and registries say, in words that help; and what happens to a tool when the command ends early."""

from __future__ import annotations

import pytest

from cli.images.runner import explain

SAID = {
    "docker's hub": ("denied: requested access to the resource is denied", "refuses the credentials"),
    "docker without a login": ("no basic auth credentials", "refuses the credentials"),
    "podman": (
        "Error: writing blob: initiating layer upload to /v2/x/ in r.example: unauthorized: authentication required",
        "refuses the credentials",
    ),
    "buildah": ("unable to retrieve auth token: invalid username/password: unauthorized", "refuses the credentials"),
    "no name": ("dial tcp: lookup r.example on 10.0.0.2:53: no such host", "cannot be reached"),
    "no server": ("dial tcp 10.1.2.3:443: connect: connection refused", "cannot be reached"),
    "no TLS": ("http: server gave HTTP response to HTTPS client", "plain HTTP"),
    "unknown CA": ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate"),
    "pull limit": ("toomanyrequests: You have reached your pull rate limit", "limits pulls"),
    "disk": ("write /var/lib/docker/tmp/x: no space left on device", "disk is full"),
    "anything else": ("E: Unable to locate package slurmctld", ""),
}


@pytest.mark.parametrize("case", SAID)
def test_known_complaints_are_explained(case: str) -> None:
    said, meaning = SAID[case]
    reason, advice = explain(f"Copying blob sha256:1\n{said}\n")
    assert meaning in reason
    assert bool(reason) == bool(meaning)
    assert bool(advice) == bool(reason)
