"""`slurmstack login`: the way into a cluster."""

from __future__ import annotations

import pytest

from cli.commands.access import open_session
from cli.errors import Failure
from config import load_config
from tests import stacks
from tests.fakes.kubectl import FakeKubectl


def test_a_command_without_a_user_before_it_is_told_how_it_is_written() -> None:
    with pytest.raises(Failure, match="'id' is not a user of the stack file") as caught:
        open_session(FakeKubectl(), load_config(stacks.dev()), user="id", key=None, command=[])
    assert "`slurmstack login USER -- COMMAND`" in caught.value.hint
