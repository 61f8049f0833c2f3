"""Slurm's files of a stack that a pool and its partition leave."""

from __future__ import annotations

HEAD = "ClusterName=a\nNodeSet=a Feature=a\n"
MAIN = "PartitionName=main Nodes=a MaxTime=UNLIMITED State=UP Default=YES\n"
GPU_NODES = "NodeSet=gpu Feature=gpu\n"
GPU = "PartitionName=gpu Nodes=gpu MaxTime=1:00:00 State=UP\n"
BOTH = {"slurm.conf": HEAD + GPU_NODES + MAIN + GPU, "cgroup.conf": "x\n"}
ONE = {"slurm.conf": HEAD + MAIN, "cgroup.conf": "x\n"}
