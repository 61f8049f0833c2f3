"""Which logs there are to follow, and what is left out of them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.logs.lines import Line
from cli.logs.sources import containers, is_probe


@pytest.mark.parametrize(("phase", "over"), [("Running", ["setup"]), ("Succeeded", ["setup", "main"])])
def test_a_container_that_has_ended_is_over_where_it_does_not_begin_again(phase: str, over: list[str]) -> None:
    ended: dict[str, Any] = {"state": {"terminated": {}}}
    status = {
        "phase": phase,
        "initContainerStatuses": [{"name": "setup", **ended}, {"name": "munged", "state": {"running": {}}}],
        "containerStatuses": [{"name": "main", **ended}],
    }
    spec = {"initContainers": [{"name": "setup"}, {"name": "munged"}], "containers": [{"name": "main"}]}
    found = containers([{"metadata": {"name": "a-0"}, "spec": spec, "status": status}])
    assert [one.name for one in found if one.over] == over


@pytest.mark.parametrize(
    ("place", "text", "probe"),
    [
        ("login-0/sshd", "Connection closed by 10.197.64.1 port 54454", True),
        ("login-0/sshd", "Connection reset by 10.197.64.1 port 54454", True),
        ("login-0/sshd", "Connection closed by authenticating user x 10.0.0.1 port 1 [preauth]", False),
        ("login-0/sackd", "Connection closed by 10.197.64.1 port 54454", False),
    ],
)
def test_what_is_left_out_is_only_what_sshd_writes_of_probes(place: str, text: str, probe: bool) -> None:
    assert is_probe(Line(at=0, component="login", place=place, text=text)) == probe
