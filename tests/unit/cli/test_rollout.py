"""What an apply waits for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cli.errors import Failure
from cli.kubectl import Kubectl
from cli.manifests import Manifest
from cli.rollout import await_rollout


class Empty:
    """A cluster in which somebody has deleted everything."""

    def items(self, *_: str) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_what_somebody_has_deleted_meanwhile_is_not_ready(kind: str) -> None:
    item = Manifest(urn="", document={"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "database"}})
    with pytest.raises(Failure, match=r"database \(deleted by somebody\)"):
        await_rollout(cast("Kubectl", Empty()), [item], namespace="slurm", timeout=-1, tell=lambda _: None)
