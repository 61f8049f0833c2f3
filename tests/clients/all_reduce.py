"""A program for PyTorch's launchers: four ranks on two nodes, without GPUs."""

from __future__ import annotations

from tests.clients.conftest import NODES

ALL_REDUCE = """
import os, socket, torch
import torch.distributed as dist
dist.init_process_group("gloo")
told = [None] * dist.get_world_size()
dist.all_gather_object(told, socket.gethostname())
number = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(number)
if dist.get_rank() == 0:
    print("PyTorch", torch.__version__, "sum", number.item(), "on", *told)
dist.destroy_process_group()
"""
"""Each of four ranks adds its number to those of the others."""

SUM = f"PyTorch 2.6.0+debian sum 10.0 on {NODES[0]} {NODES[0]} {NODES[1]} {NODES[1]}"
"""What it prints."""
