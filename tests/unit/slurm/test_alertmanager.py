"""Who is told once, and not at all, as Alertmanager itself judges with our configuration and with that of the page."""

from __future__ import annotations

import re

import yaml

from slurm.alerts import GROUP_BY, INHIBITIONS
from tests.stacks import ROOT


def of_the_page() -> str:
    """The file that docs/monitoring.md has people write."""
    (found,) = re.findall(r"(?<=alertmanager.yml <<'END'\n).*?(?=^END$)", _page(), re.DOTALL | re.MULTILINE)
    return str(found)


def _page() -> str:
    return (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")


def test_the_page_has_the_groups_and_the_rules_that_ours_has() -> None:
    of_page = yaml.safe_load(of_the_page())
    assert of_page["route"]["group_by"] == list(GROUP_BY)
    assert of_page["inhibit_rules"] == list(INHIBITIONS)
