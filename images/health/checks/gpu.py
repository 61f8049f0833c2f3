"""The checks of NVIDIA GPUs, of any type."""

from __future__ import annotations

from typing import Final

from images.health.contract import Check
from images.health.later import later

SMI_SECONDS: Final = 12.0
"""Time limit of a check that asks nvidia-smi once (8 s at most), or waits for the answer to another check."""

# None before a job: one call of nvidia-smi takes longer than a prolog should.
PRESENCE: Final = Check(
    name="gpu-presence",
    summary="all GPUs of the node are there, and the driver asks for no reset",
    contexts=frozenset({"periodic"}),
    run=later("images.health.nvidia.presence"),
    hardware="gpu",
    seconds=SMI_SECONDS,
)
XID: Final = Check(
    name="gpu-xid",
    summary="errors of the GPUs in the kernel's log (Xids), as NVIDIA's catalogue classes them",
    contexts=frozenset({"periodic"}),
    run=later("images.health.nvidia.xid"),
    hardware="gpu",
)
MEMORY: Final = Check(
    name="gpu-memory",
    summary="uncorrectable memory errors (ECC), remapped rows and retired pages of the GPUs",
    contexts=frozenset({"periodic"}),
    run=later("images.health.nvidia.memory"),
    hardware="gpu",
    seconds=SMI_SECONDS + 8.0,  # older drivers have to be asked twice
)
LINKS: Final = Check(
    name="gpu-links",
    summary="width and generation of the GPUs' PCIe links, active NVLinks and their errors",
    contexts=frozenset({"periodic"}),
    run=later("images.health.nvidia.links"),
    hardware="gpu",
    seconds=SMI_SECONDS + 16.0,  # two more calls, for the state of the NVLinks and for their counters
)
THERMAL: Final = Check(
    name="gpu-thermal",
    summary="temperatures of the GPUs, and clocks that the hardware has lowered",
    contexts=frozenset({"periodic"}),
    run=later("images.health.nvidia.thermal"),
    hardware="gpu",
    seconds=SMI_SECONDS,
)
