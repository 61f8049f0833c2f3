"""A node where all is well, with all that any check looks at."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from images.common.command import Result
from images.common.health.contract import Check, Node, Status, Thresholds
from images.health.checks import disks
from images.health.runner import attempt
from tests.fakes.commands import Answer, FakeRunner
from tests.unit.images.health.gpus import machine
from tests.unit.images.health.gpus import node as gpu_node
from tests.unit.images.health.places import add_process, make_node, write

LIMITS = Thresholds(
    {
        "disks": dict.fromkeys(("warn_percent", "fail_percent", "warn_inodes_percent", "fail_inodes_percent"), 101),
    }
)


class Worker:
    """A node where all is well, with all that any check looks at."""

    def __init__(self, path: Path) -> None:
        given = make_node(path, gpus=8, infiniband=True)
        self.root, self.state = given.root, given.state
        self.node: Node = replace(gpu_node(given.root), name="w-0", infiniband=True, state=given.state, jail=given.jail)
        self.node = replace(self.node, local_disks=(given.root,))
        add_process(self.root / "proc", 7, comm="slurmd", uid=0)
        add_process(self.root / "proc", 90, comm="slurmstepd", title="slurmstepd: [17.0]", uid=0)
        write(self.root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
        write(self.root / "run/slurm/conf/slurm.conf", "SlurmctldHost=controller-0\n")
        port = {
            "link_layer": "InfiniBand",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
        }
        port |= {"counters/symbol_error": "0", "counters/link_downed": "0", "../../board_id": "MT_0000000838"}
        for name, text in port.items():
            (self.root / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True, exist_ok=True)
            write(self.root / "sys/class/infiniband/mlx5_0/ports/1" / name, f"{text}\n")
        for directory in disks.WRITTEN:
            (self.root / directory).mkdir(parents=True)

    def look(self, check: Check, answer: Answer | None = None) -> tuple[Status, FakeRunner]:
        """Run it as the child of the runner does; `answer`: of all programs."""
        well = machine()
        well.answers |= {
            "nvidia-smi --query-gpu=pci.bus_id,index,memory.used": Result(
                code=0, stdout="".join(f"00000000:3{number}:00.0, {number}, 4\n" for number in range(8))
            ),
            "unmunge": Result(code=0, stdout="STATUS:          0\n\n"),
        }
        runner = well if answer is None else FakeRunner({"": answer})
        return attempt(check, self.node, LIMITS, runner).status, runner


def lead_names_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a name server would that knows all names."""
    here = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: here)
