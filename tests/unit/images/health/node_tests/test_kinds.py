"""Outputs of the tools: well, slow, garbage, empty, absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.health.contract import Result, Status
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.contract import NodeTest, Place
from images.health.node_tests.expected import Expected, Minimum
from images.health.node_tests.judge import Said, judge, parse
from images.health.node_tests.on_node import LONGEST, kept, told

DATA = Path(__file__).parent / "data"
NOTHING = Expected({})
EACH = [pytest.param(test, id=name) for name, test in TESTS.items()]


def output(name: str) -> str:
    return (DATA / name).read_text()


def result(name: str, text: str, *, code: int = 0, least: dict[str, float] | None = None) -> Result:
    """What comes of an output, the whole way: shortened on the node, sent as a comment, read and judged."""
    test = TESTS[name]
    said = parse(told(code, text, test.keep, "8x G"))
    assert said is not None
    minima = {figure: Minimum(value=value, unit=test.units[figure]) for figure, value in (least or {}).items()}
    expected = Expected({"8x G": {name: minima}, "8x G with InfiniBand": {name: minima}})
    return judge(test, said, expected, platforms=[], infiniband=True)


OUTPUTS = {
    "cpu-speed": ("sysbench-cpu.txt", {"events": 1000.0}),
    "memory-bandwidth": ("sysbench-memory.txt", {"write": 1.0}),
    "filesystem-throughput": ("fio.txt", {"write": 100.0, "read": 100.0}),
    "nccl-node": ("nccl.txt", {"busbw": 420.0}),
    "nccl-pair": ("nccl.txt", {"busbw": 420.0}),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_reaches_the_minimum_is_well(name: str) -> None:
    file, least = OUTPUTS[name]
    found = result(name, output(file), least=least)
    assert (found.status, found.fault) == (Status.OK, None)
    assert len(found.values) == len(least)
    assert all(value > 0 for value in found.values.values())


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_slow_fails_with_the_figures(name: str) -> None:
    file, least = OUTPUTS[name]
    found = result(name, output(file), least=dict.fromkeys(least, 1000000000.0))
    assert found.status is Status.FAIL
    assert found.fault == TESTS[name].fault
    for figure in least:
        assert f"{figure} " in found.message
    assert "(at least 1e+09 expected)" in found.message


@pytest.mark.parametrize("name", OUTPUTS)
def test_where_nothing_is_expected_the_figure_is_told_and_there_is_no_verdict(name: str) -> None:
    found = result(name, output(OUTPUTS[name][0]))
    assert found.status is Status.NOT_CHECKED
    assert "nothing is known to be expected of 8x G" in found.message
    assert found.values


@pytest.mark.parametrize(
    ("name", "file", "values"),
    [
        ("cpu-speed", "sysbench-cpu.txt", ["events"]),
        ("memory-bandwidth", "sysbench-memory.txt", ["write"]),
        ("nccl-node", "nccl.txt", ["busbw"]),
    ],
)
def test_figures_are_in_the_unit_that_is_declared(name: str, file: str, values: list[str]) -> None:
    reading = TESTS[name].read(kept(output(file), TESTS[name].keep))
    assert sorted(reading.figures) == sorted(values) == sorted(TESTS[name].units)


def test_the_figures_are_the_ones_that_the_tools_say() -> None:
    assert TESTS["nccl-node"].read(kept(output("nccl.txt"), TESTS["nccl-node"].keep)).figures == {"busbw": 474.845}
    disk = TESTS["filesystem-throughput"].read(kept(output("fio.txt"), TESTS["filesystem-throughput"].keep)).figures
    assert disk == {"write": pytest.approx(819200 * 1024 / 1e6), "read": pytest.approx(481882 * 1024 / 1e6)}
    memory = TESTS["memory-bandwidth"].read("transferred (1000.00 MiB/sec)").figures
    assert memory == {"write": pytest.approx(1.048576)}


@pytest.mark.parametrize("test", EACH)
@pytest.mark.parametrize("code", [0, 1, 124, 137])
@pytest.mark.parametrize(
    "text", ["", "\n\n", "Segmentation fault", "3;3;3;3", "| | |", "\x00\xff", "{}", "events per second: nan"]
)
def test_garbage_is_not_checked(test: NodeTest, code: int, text: str) -> None:
    found = result(test.name, text, code=code)
    assert found.status is Status.NOT_CHECKED
    assert found.message


@pytest.mark.parametrize("test", EACH)
def test_an_absent_tool_is_named(test: NodeTest) -> None:
    found = result(test.name, "tool: No such file or directory", code=127)
    assert (found.status, found.message) == (Status.NOT_CHECKED, "tool: No such file or directory")


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_figure_of_a_tool_that_ended_with_an_error_is_no_verdict(name: str) -> None:
    file, least = OUTPUTS[name]
    for wanted in (least, dict.fromkeys(least, 1000000000.0)):
        assert result(name, output(file), code=1, least=wanted).status is Status.NOT_CHECKED


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_figure_of_zero_or_two_of_them_are_not_understood(name: str) -> None:
    text = output(OUTPUTS[name][0])
    twice = result(name, text + text.replace("write", "write2"), least=OUTPUTS[name][1])
    nothing = text.replace("474.845", "0").replace("819200", "0").replace("481882", "0")
    for line in text.splitlines():
        if "events per second" in line or "MiB/sec" in line:
            nothing = nothing.replace(
                line, "events per second: 0.00" if "events" in line else "transferred (0 MiB/sec)"
            )
    assert result(name, nothing, least=OUTPUTS[name][1]).status is Status.NOT_CHECKED
    if name != "filesystem-throughput":
        assert twice.status is Status.NOT_CHECKED


def test_wrong_sums_fail_whatever_the_bandwidth() -> None:
    text = output("nccl.txt").replace("Out of bounds values : 0 OK", "Out of bounds values : 50 FAILED")
    for code in (0, 1):
        found = result("nccl-node", text, code=code)
        assert (found.status, found.fault) == (Status.FAIL, "hardware")
        assert "50 wrong values" in found.message


def test_an_error_of_fio_is_not_checked() -> None:
    found = result("filesystem-throughput", output("fio-error.txt"), code=1, least={"write": 1.0})
    assert found.status is Status.NOT_CHECKED
    text = output("fio.txt").replace("fio-3.33;write;0;0;", "fio-3.33;write;0;28;")
    assert "fio says error 28" in result("filesystem-throughput", text, code=1).message


@pytest.mark.parametrize("level", ["dcgm-r1", "dcgm-r2", "dcgm-r3"])
def test_dcgm_judges_by_itself(level: str) -> None:
    found = result(level, output("dcgm3.txt"))
    assert (found.status, found.message) == (Status.OK, "passed 10 tests passed")


@pytest.mark.parametrize("code", [0, 226])
def test_a_failure_of_dcgm_names_the_gpu(code: int) -> None:
    found = result("dcgm-r2", output("dcgm4.txt"), code=code)
    assert (found.status, found.fault) == (Status.FAIL, "hardware")
    assert "memory GPU1: Fail" in found.message
    older = output("dcgm3.txt").replace(
        "| PCIe                      | Pass - All ", "| PCIe                      | Fail - GPU: 3 "
    )
    assert "PCIe Fail - GPU: 3" in result("dcgm-r2", older, code=226).message


@pytest.mark.parametrize("row", ["Persistence Mode         ", "NVML Library             ", "Graphics Processes       "])
def test_a_failure_of_the_installation_says_nothing_about_gpus(row: str) -> None:
    text = output("dcgm3.txt").replace(f"| {row} | Pass", f"| {row} | Fail")
    found = result("dcgm-r1", text, code=226)
    assert found.status is Status.NOT_CHECKED
    assert row.strip() in found.message


def test_a_level_of_which_all_was_skipped_is_not_checked() -> None:
    assert result("dcgm-r1", output("dcgm3.txt").replace("Pass", "Skip")).status is Status.NOT_CHECKED


def test_the_rows_of_a_full_machine_fit_into_a_comment() -> None:
    row = "| {:<25} | {:<46} |"
    rows = [row.format("", f"GPU{gpu}: Pass") for gpu in range(8)]
    text = "\n".join(line for name in range(14) for line in [row.format(f"test {name}", "Pass"), *rows])
    comment = told(0, text, TESTS["dcgm-r3"].keep, "8x NVIDIA H100 80GB HBM3")
    said = parse(comment)
    assert said is not None
    assert not said.cut
    assert len(comment) <= LONGEST
    assert TESTS["dcgm-r3"].read(said.text).figures == {"passed": 14}


def test_what_was_cut_is_no_verdict() -> None:
    said = Said(code=0, text=kept(output("nccl.txt"), TESTS["nccl-node"].keep), cut=True)
    found = judge(TESTS["nccl-node"], said, NOTHING, platforms=[], infiniband=False)
    assert (found.status, found.values) == (Status.NOT_CHECKED, {})


@pytest.mark.parametrize(
    "comment",
    ["", "hello", "[]", "7", "null", '{"code": "0", "text": ""}', '{"code": 0}', '{"code": true, "text": ""}'],
)
def test_a_comment_of_somebody_else_tells_nothing(comment: str) -> None:
    assert parse(comment) is None


def test_a_pair_uses_all_gpus_of_both_nodes_and_a_node_its_own() -> None:
    place = Place(gpus=8, nccl_tests="/opt/all_reduce_perf", mpi="pmi2")
    node, pair = TESTS["nccl-node"].command(place), TESTS["nccl-pair"].command(place)
    assert (node[0], node[-2:]) == ("/opt/all_reduce_perf", ("-g", "8"))
    assert {"--mpi=pmi2", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8"} <= set(pair)
    assert pair[-2:] == ("-g", "1")


@pytest.mark.parametrize("test", EACH)
def test_the_job_has_time_to_start_and_to_tell(test: NodeTest) -> None:
    assert test.minutes * 60 >= test.seconds + 60
    assert test.interval >= 10 * test.seconds
    assert test.nodes in {1, 2}
