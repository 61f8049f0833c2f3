"""What Prometheus reads, as its own promtool takes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from config import load_config
from slurm.prometheus import CONFIG_DIR, prometheus_files
from tests import stacks
from tests.stacks import with_change


def test_promtool_takes_the_configuration_and_its_rules(promtool: str, tmp_path: Path) -> None:
    monitoring = {"install": True, "nodes": True, "kube_state": True, "kube_state_image": "r.example.com/metrics:v2"}
    config = load_config(with_change(stacks.existing(), "monitoring", monitoring))
    for name, text in prometheus_files(config).items():
        (tmp_path / name).write_text(text.replace(CONFIG_DIR, str(tmp_path)))
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
