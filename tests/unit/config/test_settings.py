"""Settings of slurm.conf that would let users harm others."""

from __future__ import annotations

import pytest

from config import ConfigError, load_config
from tests import stacks
from tests.stacks import with_change


@pytest.mark.parametrize("settings", [{"UnkillableStepTimeout": 329}, {"unkillablesteptimeout": "60"}])
def test_a_timeout_with_which_a_user_drains_a_node_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="make it 330 at least"):
        load_config(with_change(stacks.existing(), "slurm.settings", settings))


@pytest.mark.parametrize("value", [330, "600"])
def test_a_longer_timeout_is_taken(value: object) -> None:
    load_config(with_change(stacks.existing(), "slurm.settings", {"UnkillableStepTimeout": value}))
