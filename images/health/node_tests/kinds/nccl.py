"""nccl-node and nccl-pair: bus bandwidth of an all-reduce over the GPUs of a node, and over those of two nodes.

8 GB are sent, which is enough for the bandwidth to be reached and fits thrice into 40 GB. On two nodes NCCL may take a
tree and so get beyond what the network does; with a ring the figure is the network's (NVIDIA/nccl-tests, issue 196).
"""

from __future__ import annotations

import re
from typing import Final

from images.health.node_tests.contract import NodeTest, Place, Reading, UnreadableError
from images.health.node_tests.kinds.lines import NUMBER, one_figure

_SIZES: Final = ("-b", "8G", "-e", "8G", "-n", "20", "-w", "5", "-c", "1")
_AVERAGE: Final = "Avg bus bandwidth"
_BOUNDS: Final = "Out of bounds values"


def _on_node(place: Place) -> tuple[str, ...]:
    return (place.nccl_tests, *_SIZES, "-g", str(place.gpus))


def _on_pair(place: Place) -> tuple[str, ...]:
    # One process for each GPU. `--overlap`: the batch script's own step has the resources too. No bindings: NCCL's
    # threads must not share one core.
    tasks = (f"--ntasks-per-node={place.gpus}", f"--gpus-per-node={place.gpus}", "--overlap", "--cpu-bind=none")
    return ("srun", f"--mpi={place.mpi}", "--nodes=2", *tasks, place.nccl_tests, *_SIZES, "-g", "1")


def _read(text: str) -> Reading:
    wrong = re.findall(rf"^{_BOUNDS} ?: (\d+) (OK|FAILED)$", text, re.MULTILINE)
    if len(wrong) != 1:
        raise UnreadableError("it does not say whether the sums are right")
    bandwidth = one_figure(rf"^{_AVERAGE} ?: {NUMBER}$", text)
    count, word = wrong[0]
    bad = "" if word == "OK" and int(count) == 0 else f"{count} wrong values in an all-reduce"
    return Reading(figures={"busbw": bandwidth}, bad=bad)


NODE: Final = NodeTest(
    name="nccl-node",
    summary="all-reduce over the GPUs of a node (NCCL's all_reduce_perf)",
    command=_on_node,
    keep=f"(?:{_AVERAGE}|{_BOUNDS}) *:.*",
    read=_read,
    units={"busbw": "GB/s"},
    hardware="gpu",
    gpus=2,
    seconds=120,
)

PAIR: Final = NodeTest(
    name="nccl-pair",
    summary="all-reduce over the GPUs of two nodes, in a ring (NCCL's all_reduce_perf)",
    command=_on_pair,
    keep=f"(?:{_AVERAGE}|{_BOUNDS}) *:.*",
    read=_read,
    units={"busbw": "GB/s"},
    hardware="gpu",
    gpus=1,
    nodes=2,
    seconds=180,
    environment={"NCCL_ALGO": "Ring"},
)

TESTS: Final = (NODE, PAIR)
