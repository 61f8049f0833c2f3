"""Slurm's host lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.common.slurm_node import wanted_nodes
from images.common.slurm_records import compress, expand


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("", ()),
        ("gpu-0", ("gpu-0",)),
        ("gpu-[08-11]", ("gpu-08", "gpu-09", "gpu-10", "gpu-11")),
        ("gpu-[0-1,3],cpu-0", ("cpu-0", "gpu-0", "gpu-1", "gpu-3")),
    ],
)
def test_names_in_a_host_list(hosts: str, names: tuple[str, ...]) -> None:
    assert expand(hosts) == names


def test_nodes_that_pending_jobs_ask_for() -> None:
    assert wanted_nodes("(null)\ngpu-[0-1]\n(null)\ngpu-1,cpu-3\n") == {"gpu-0", "gpu-1", "cpu-3"}


@given(
    st.sets(st.one_of(st.integers(0, 3000).map(lambda number: f"a-{number}"), st.sampled_from(["b", "n007", "c-1x"])))
)
def test_a_host_list_has_exactly_its_names(names: set[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(names) if names else compress(names) == ""
