"""The graphs of all examples and their rendered files, byte for byte, as they were before the house was moved around.

`python -m tests.graph.unchanged` writes them anew, after a change that is meant.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from cli.commands.stack import file_name, to_yaml
from cli.program.recording import manifests, record
from cli.program.values import printable
from tests import stacks
from tests.graph.objects import everything

DIRECTORY = Path(__file__).parent
STACKS: dict[str, Callable[[], dict[str, Any]]] = {
    "dev": stacks.dev,
    "existing": stacks.existing_full,
    "everything": everything,
    "nebius": stacks.nebius,
    "nebius-full": stacks.nebius_full,
}
HELD_STILL = "000000000000"
"""In place of the hash of images/, so that a program of the images may change and nothing here does."""


NO_KEY = Path("/nowhere/id_ed25519")
"""In place of the key of the local cluster, which this machine may have just now or not."""


def lines_of(name: str) -> list[str]:
    """One line for each resource, then one for each rendered file with its digest."""
    with (
        mock.patch("slurm.images.content_hash", return_value=HELD_STILL),
        mock.patch("components.clouds.connect.login_key", return_value=NO_KEY),
        mock.patch.dict("os.environ"),
    ):
        os.environ.pop("KUBECONFIG", None)  # whoever runs the tests may work with a cluster of his own
        recording = record(STACKS[name](), stack="test")
    lines = []
    for item in recording:
        told = dataclasses.asdict(item) | {"inputs": printable(item.inputs)}
        lines.append(json.dumps(told, sort_keys=True, separators=(",", ":")))
    if "nebius" not in name:
        for manifest in manifests(recording):
            digest = hashlib.sha256(to_yaml(manifest).encode()).hexdigest()
            lines.append(f"{file_name(manifest)} {digest}")
    return lines


def file_of(name: str) -> Path:
    """Where they are kept."""
    return DIRECTORY / f"{name}.txt"
