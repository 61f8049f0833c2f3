"""Which pod the Service of slurmctld leads to: the one that has the label of the active controller."""

from __future__ import annotations

import http.client
from typing import Final

from images.common.kubernetes import MERGE_PATCH, Kube, KubeError

ACTIVE: Final = "slurmstack/active"
"""Label that the Service selects (components/controller.py)."""

PODS: Final = ("controller-0", "controller-1")


def lead_to(kube: Kube, me: str) -> None:
    """Take the label from the other pod, which may be paused and would answer nobody, and give it to this one.

    Raises KubeError.
    """
    for pod in sorted(PODS, key=lambda name: name == me):
        value = "yes" if pod == me else None
        try:
            kube.send("PATCH", f"{kube.path('pods')}/{pod}", {"metadata": {"labels": {ACTIVE: value}}}, MERGE_PATCH)
        except KubeError as error:
            if pod == me or error.status != http.client.NOT_FOUND:
                raise
