"""The Job of a rehearsal, and what is made of its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from cli.backup import rehearse as module
from cli.backup.rehearse import config_for, rehearse, text
from cli.stack import Stack
from config import load_config
from config.sections.services import ImageRole
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.backup.cluster import REPORT, Cluster

FULL = stacks.existing_full()
ENDED = {
    "backup": "20261126T020000Z", "ok": True, "seconds": {"total": 33, "slurmctld": 4},
    "found": {"state": {"jobs": 3}}, "problems": [],
}  # fmt: skip


class Kept(Cluster):
    """One that keeps what is patched."""

    def run(self, *arguments: str, **more: Any) -> Any:
        if arguments[:3] == ("patch", "cronjob", "backups"):
            self.said.append(arguments[-1])
            return None
        return super().run(*arguments, **more)


@pytest.mark.parametrize(("ok", "upgrade"), [(True, False), (False, False), (True, True)])
def test_only_one_of_the_cluster_s_own_release_that_ended_well_is_noted(
    monkeypatch: pytest.MonkeyPatch, *, ok: bool, upgrade: bool
) -> None:
    monkeypatch.setattr(module, "answer_in", lambda _: {**ENDED, "ok": ok})
    cluster = Kept()
    outcome = rehearse(cluster.kubectl, load_config(FULL), ["state"], "", REPORT, upgrade=upgrade)
    assert (outcome["ok"], outcome["slurm"]) == (ok, "24.11")
    assert any("lastSuccessfulTime" in line for line in cluster.said) == (ok and not upgrade)
    (container,) = cluster.jobs[-1]["spec"]["template"]["spec"]["containers"]
    (files,) = [json.loads(item["value"]) for item in container["env"] if item["name"] == "FILES"]
    assert {"slurm.conf", "gres.conf"} <= files.keys()


def test_another_release_has_its_own_images_and_slurm_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "answer_in", lambda _: dict(ENDED))
    digests = dict.fromkeys(get_args(ImageRole), f"sha256:{'0' * 64}")
    pinned = with_change(FULL, "images", {**FULL["images"], "tag": "old", "digests": digests})
    stack = Stack(name="prod", file=Path("Pulumi.prod.yaml"), sections=pinned, config=load_config(pinned))
    for tag, shown in (("", ":26.05-"), ("new", ":new")):
        cluster = Cluster()
        rehearse(cluster.kubectl, config_for(stack, "26.05", tag), ["state"], "", REPORT, upgrade=True)
        (container,) = cluster.jobs[-1]["spec"]["template"]["spec"]["containers"]
        assert shown in container["image"]
        assert "for Slurm 26.05" in str(container["env"])


def test_how_it_ended_is_told() -> None:
    said = text({**ENDED, "slurm": "24.11", "ok": False, "problems": ["database: lost"]})
    assert "under Slurm 24.11 is NOT as it was (33 s)\n" in said
    assert "slurmctld answered after 4.0 s\n" in said
    assert said.endswith("problem: database: lost")
