"""A stack of two pools, and stack files that differ from it by a word, for the jobs that a change touches."""

from __future__ import annotations

from typing import Any

STACK: dict[str, Any] = {
    "cloud": {"kind": "existing", "context": "prod"},
    "worker_nodes": {
        "cpu": {"size": 4, "resources": {"cpus": 4, "memory": "8Gi"}, "features": ["avx2"]},
        "big": {"size": 2, "resources": {"cpus": 16, "memory": "64Gi"}},
    },
    "partitions": {
        "main": {"pools": ["cpu", "big"], "default": True},
        "small": {"pools": ["cpu"], "max_time": "1-00:00:00"},
        "large": {"pools": ["big"]},
    },
}
WEEK = 7 * 24 * 3600
