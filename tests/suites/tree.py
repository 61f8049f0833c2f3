"""What was tested: the commit, and a name of the tree that does not change when a record of it is committed."""

from __future__ import annotations

import hashlib
import subprocess

from tests.stacks import ROOT

RECORDS = "test-record"
QUARANTINE = "tests/quarantine.toml"


def git(*arguments: str) -> str:
    """What git prints. Empty where it fails, as for a revision that is not here."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """The commit that is checked out, with `+` where files differ from it."""
    changed = git("status", "--porcelain", "--", ".", f":(exclude){RECORDS}", f":(exclude){QUARANTINE}")
    revision = git("rev-parse", "HEAD")
    return revision + ("+" if changed or not revision else "")


def tree() -> str:
    """A name for the files that are checked out, without the records of tests and the quarantine.

    The same for two commits with the same files; with `+`, as in `commit`, where files differ from the commit.
    """
    kept = [line for line in git("ls-tree", "-r", "HEAD").splitlines() if not _is_record(line.partition("\t")[2])]
    if not kept:  # outside of a repository, or in one of another user's
        return "unknown+"
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:12] + ("+" if commit().endswith("+") else "")


def commits_since(revision: str) -> int | None:
    """How many commits came after it; None where it is not known here."""
    counted = git("rev-list", "--count", f"{revision}..HEAD")
    return int(counted) if counted else None


def _is_record(path: str) -> bool:
    return path.startswith(f"{RECORDS}/") or path == QUARANTINE
