"""CONTRIBUTING.md: what it names is there, and its examples are about what code has."""

from __future__ import annotations

import re

from images.health.checks import find_checks
from tests.stacks import ROOT
from tests.unit.cli.doctor.cluster.situations import SITUATIONS

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_files_that_it_names_are_there() -> None:
    packages = r"\b(?:cli|config|docs|images|slurm|slurm_templates|tests)/[\w./-]*[\w/]"
    named = set(re.findall(packages, TEXT))
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name).exists()]


def test_its_examples_would_be_new() -> None:
    """Where one of them has come into the tree, the page takes another one."""
    settings = (ROOT / "config/sections/slurm.py").read_text(encoding="utf-8")
    assert "kill_wait" in TEXT
    assert "kill_wait" not in settings
    assert 'NAME: Final = "entropy"' in TEXT
    assert "entropy" not in find_checks()
    assert '"no partition": (' in TEXT
    assert "no partition" not in SITUATIONS
