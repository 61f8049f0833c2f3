"""What Prometheus reads: the right targets under the right names, in files that Prometheus' own promtool takes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from config import load_config
from config.cluster import ClusterConfig
from slurm.prometheus import CONFIG_DIR, prometheus_files
from tests import stacks
from tests.stacks import with_change

KUBE_STATE: dict[str, Any] = {"kube_state": True, "kube_state_image": "registry.example.com/kube-state-metrics:v2.15.0"}


def config(version: str = "24.11", **monitoring: Any) -> ClusterConfig:
    sections = with_change(stacks.existing(), "slurm.version", version)
    return load_config(with_change(sections, "monitoring", {"install": True, **monitoring}))


def test_promtool_takes_the_configuration_and_its_rules(promtool: str, tmp_path: Path) -> None:
    for name, text in prometheus_files(config(nodes=True, **KUBE_STATE)).items():
        (tmp_path / name).write_text(text.replace(CONFIG_DIR, str(tmp_path)))
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
