"""The scripts of examples/ci with real commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nebius.api.nebius.iam.v1 as iam
import pytest

from tests import stacks
from tests.fakes.nebius import Reply, serve
from tests.stacks import ROOT, with_change
from tests.unit.cli.command_line import stack_file

CI = ROOT / "examples" / "ci"


def script(name: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the command of this project."""
    return subprocess.run(
        [CI / "scripts" / name, *arguments],
        cwd=cwd,
        env={**os.environ, "SLURMSTACK": str(Path(sys.executable).parent / "slurmstack"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def test_a_pull_request_is_compared_with_the_commit_before_it_without_a_cluster(tmp_path: Path) -> None:
    git(tmp_path, "init")
    stack_file(tmp_path, stacks.existing())
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "before")
    stack_file(tmp_path, with_change(stacks.existing(), "worker_nodes.cpu.size", 5))
    options = ("Pulumi.test.yaml", "HEAD", "comment.md")
    done = script("preview-offline.sh", *options, cwd=tmp_path, KUBECONFIG="/nonexistent")
    assert done.returncode == 0, done.stderr
    comment = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert "! update StatefulSet cpu\n-   spec.replicas: 4\n+   spec.replicas: 5\n" in comment
    stack_file(tmp_path, with_change(stacks.existing(), "jail.size", "1Gi"))
    assert script("preview-offline.sh", *options, cwd=tmp_path).returncode == 3
    assert "it cannot shrink" in (tmp_path / "comment.md").read_text(encoding="utf-8")
    stack_file(tmp_path, with_change(stacks.existing(), "jail.size", "none"))
    assert script("preview-offline.sh", *options, cwd=tmp_path).returncode == 2
    (tmp_path / "Pulumi.new.yaml").write_bytes((ROOT / "Pulumi.dev.yaml").read_bytes())
    done = script("preview-offline.sh", "Pulumi.new.yaml", "HEAD", "comment.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "comment.md").read_text(encoding="utf-8").startswith("A new stack")


GH = """\
#!/bin/bash
printf '%s\\n' "$*" >>calls
[ "$marker" = "$(head -n 1 comment.md)" ] || exit 9
case "$*" in *--paginate*) cat ids ;; esac
"""
"""A `gh` that notes its calls and knows the ids of the comments that its filter would leave."""


@pytest.mark.parametrize(
    ("ids", "call"),
    [
        ("", "api --silent --method POST repos/o/r/issues/7/comments --field body=@comment.md"),
        ("12\n13\n", "api --silent --method PATCH repos/o/r/issues/comments/12 --field body=@comment.md"),
    ],
)
def test_a_comment_takes_the_place_of_the_one_before(tmp_path: Path, ids: str, call: str) -> None:
    (tmp_path / "gh").write_text(GH, encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "ids").write_text(ids, encoding="utf-8")
    (tmp_path / "comment.md").write_text("<!-- slurmstack preview of prod -->\n$(touch hurt)\n", encoding="utf-8")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = script("comment.sh", "comment.md", cwd=tmp_path, PATH=path, GITHUB_REPOSITORY="o/r", PULL_REQUEST="7")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[-1] == call
    assert not (tmp_path / "hurt").exists()


def login(home: Path, reply: Reply) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Log in as a job of GitLab does; what it printed, and what the cloud was asked."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NEBIUS")}
    with serve({"TokenExchangeService/Exchange": reply}) as server:
        done = subprocess.run(
            ["bash", "-c", f"source {CI}/scripts/login-nebius.sh; echo token: $NEBIUS_IAM_TOKEN"],
            cwd=ROOT,
            env={
                **clean,
                "HOME": str(home),
                "TMPDIR": str(home),
                "SLURMSTACK": str(Path(sys.executable).parent / "slurmstack"),
                "SLURMSTACK_NEBIUS_SERVER": server.address,
                "NEBIUS_SERVICE_ACCOUNT": "serviceaccount-e00a",
                "NEBIUS_ID_TOKEN": "identity-of-the-job",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done, [message for _, message in server.asked]


def test_a_pipeline_logs_in_with_its_identity_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done, asked = login(tmp_path, iam.CreateTokenResponse(access_token="secret-1", token_type="Bearer", expires_in=60))
    assert done.stdout == "token: secret-1\n", done.stderr
    assert [(request.subject_token, request.actor_token) for request in asked] == [
        ("serviceaccount-e00a", "identity-of-the-job")
    ]
    assert not list(tmp_path.rglob("*"))
