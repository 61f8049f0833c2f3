"""What tools and registries say, in words that help; and what happens to a tool when the command ends early."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import Failure
from cli.images.runner import Runner, explain

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


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(log=tmp_path / "dir/log", tool="podman", login="podman login r.example", registry="r.example/x")


def test_colours_and_empty_lines_are_left_out_and_the_log_is_begun_anew(runner: Runner) -> None:
    for _ in range(2):
        runner.start()
        lines = runner.run(["printf", "\\033[31mred\\033[0m\\n\\nplain\\n"], doing="printing")
    assert lines == ["red", "plain"]
    assert runner.log.read_text().splitlines()[1:] == ["red", "plain"]


def test_refused_credentials_are_called_so_with_the_way_to_give_others(runner: Runner) -> None:
    runner.start()
    with pytest.raises(Failure, match="refuses the credentials") as caught:
        runner.run(["sh", "-c", "echo denied: requested access to the resource is denied; exit 1"], doing="pushing")
    assert "podman login r.example" in caught.value.hint


def test_a_program_that_cannot_be_run_is_named(runner: Runner) -> None:
    runner.start()
    with pytest.raises(Failure, match="/nonexistent/podman cannot be run"):
        runner.run(["/nonexistent/podman"], doing="pushing")


def test_a_tool_that_does_not_listen_is_killed(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.shell._GRACE_S", 0.2)
    runner.start()

    def interrupt(line: str) -> None:
        (tmp_path / "pid").write_text(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"], doing="x", on_line=interrupt)
    assert not _runs(int((tmp_path / "pid").read_text()))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
