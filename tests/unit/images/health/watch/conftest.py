"""What several files of tests here want."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.images.health.watch.release_cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four machines, and the watcher that may release them."""
    made = Cluster(tmp_path)
    yield made
    made.kubernetes.close()
