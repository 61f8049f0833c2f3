"""`slurmstack kube-token`: the credential plugin as kubectl runs it."""

from __future__ import annotations

from datetime import datetime

from cli.commands.kube_token import exec_credential


def test_the_expiry_is_written_in_utc_as_kubernetes_wants_it() -> None:
    expires = datetime.fromisoformat("2026-11-21T12:00:00.5+02:00")
    assert exec_credential("x", expires)["status"]["expirationTimestamp"] == "2026-11-21T10:00:00Z"
