"""The check of InfiniBand ports; what it does is in `images/health/infiniband.py`."""

from __future__ import annotations

from typing import Final

from images.health.contract import Check
from images.health.later import later

CHECK: Final = Check(
    name="infiniband",
    summary="state, rate and errors of the InfiniBand ports",
    contexts=frozenset({"periodic"}),
    run=later("images.health.infiniband"),
    hardware="infiniband",
)
