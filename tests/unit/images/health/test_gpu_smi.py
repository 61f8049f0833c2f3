"""What the checks make of nvidia-smi: all GPUs there, their memory, temperatures, PCIe and NVLink."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_links, gpu_memory, gpu_presence, gpu_thermal
from images.health.nvidia import smi
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.gpus import (
    ABSENT,
    DEFAULTS,
    GARBAGE,
    HANGS,
    Smi,
    changed,
    machine,
    node,
    said,
    text,
    wait,
)
from tests.unit.images.health.tables import Like, outcomes, table

PRESENCE, MEMORY = gpu_presence.CHECK, gpu_memory.CHECK
THERMAL, LINKS = gpu_thermal.CHECK, gpu_links.CHECK

# ---------------------------------------------------------------- presence

LOST = text("nvidia/lost-gpu.txt").stdout
OTHERS = Smi("h100-8", gone=[5])(["nvidia-smi", f"--query-gpu={','.join(smi.FIELDS)}"]).stdout
OFF_THE_BUS = "of 8 GPUs are there: Unable to determine the device handle for GPU0000:AB:00.0..."
NO_DRIVER, MISMATCH = text("nvidia/no-driver.txt").stdout, text("nvidia/mismatch.txt").stdout
ACTION = "gpu_recovery_action"


@outcomes(
    "answer",
    [
        ("ok", Smi("h100-8")),
        ("fail [hardware]: 7 of 8 GPUs are there", Smi("h100-8", gone=[5])),
        (f"fail [hardware]: 7 {OFF_THE_BUS}", Result(code=0, stdout=LOST + OTHERS)),
        (f"fail [hardware]: 7 {OFF_THE_BUS}", Result(code=15, stdout=OTHERS, stderr=LOST)),
        (f"fail [hardware]: 0 {OFF_THE_BUS}", Result(code=15, stdout=LOST)),
        ("fail [hardware]: 0 of 8 GPUs are there: new words", Result(code=15, stdout="new words\n")),
        ("fail [hardware]: 0 of 8 GPUs are there", Result(code=6, stdout="No devices were found\n")),
        ("fail [hardware]: GPU 6: the driver asks for: GPU Reset", Smi("h100-8", {(6, ACTION): "GPU Reset"})),
        ("warn [hardware]: GPU 6: the driver asks for: Drain P2P", Smi("h100-8", {(6, ACTION): "Drain P2P"})),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=9, stdout=NO_DRIVER)),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=18, stdout=MISMATCH)),
        ("not checked: nvidia-smi did not end in 8 s", HANGS),
        ("not checked: there is no nvidia-smi", ABSENT),
        ("not checked: nvidia-smi says something unexpected: Segmentation fault (core dumped)", GARBAGE),
        ("not checked: ...unexpected: 0, GPU-1", Result(code=0, stdout="0, GPU-1\n")),
        ("not checked: ...one GPU twice", Smi("h100-8", {(7, "index"): "6"})),
    ],
)
def test_all_gpus_have_to_be_there(tmp_path: Path, expected: str, answer: Result | Smi) -> None:
    assert said(tmp_path, PRESENCE, machine(answer)) == Like(expected)
    if expected.startswith("fail [node]"):
        assert said(tmp_path, MEMORY, machine(answer)).startswith("not checked: "), "one check tells it"


def test_all_gpus_of_any_type_are_there_and_cool(tmp_path: Path) -> None:
    for name, gpus in [("h100-8", 8), ("rtx4090-2", 2), ("t4-1", 1)]:
        where, runner = node(tmp_path / name, gpus), machine(Smi(name))
        result = PRESENCE.run(where, runner, DEFAULTS)
        assert result.status == "ok"
        assert result.values == {"gpus_usable": gpus, "gpus_expected": gpus}
        result = THERMAL.run(where, runner, DEFAULTS)
        assert result.status == "ok"
        assert result.values['gpu_temperature_celsius{gpu="0"}'] in (30, 34, 36)


def test_a_gpu_that_tells_only_that_it_is_unusable_is_a_fault_and_not_believed(tmp_path: Path) -> None:
    for number, (words, fields) in enumerate(
        [("GPU is lost", ["temperature.gpu", "pstate"]), ("GPU requires reset", ["pstate"])]
    ):
        where = node(tmp_path / str(number))
        runner = machine(Smi("h100-8", {(3, field): f"[{words}]" for field in fields}))
        result = PRESENCE.run(where, runner, DEFAULTS)
        assert (result.status, result.fault, result.message) == ("fail", "hardware", f"GPU 3: {words}")
        assert result.values["gpus_usable"] == 7
        assert THERMAL.run(where, runner, DEFAULTS).status == "not checked"


# ---------------------------------------------------------------- memory

UNCORRECTED = "ecc.errors.uncorrected.volatile.total"
NEWER = ["remapped_rows.correctable", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure"]
OLDER = Smi("h100-8", unknown=NEWER)
AT_RESET = "bad memory is taken out of use at the next reset"
REPLACE = "replacing a bad memory row failed: the GPU has to be replaced"
NO_NUMBER = f"not checked: GPU 3: {UNCORRECTED}: ..."


def both(field: str, value: str) -> FakeRunner:
    """A machine where GPU 1 and 4 say this."""
    return machine(Smi("h100-8", {(1, field): value, (4, field): value}))


def older(pending: int = -1) -> FakeRunner:
    """An older driver, which tells remapped rows only on their own."""
    rows = [f"{row['uuid']}, {'Yes' if row['index'] == str(pending) else 'No'}, No\n" for row in OLDER.rows]
    return machine(OLDER, remapped=Result(code=0, stdout="".join(rows)))


@outcomes(
    "runner",
    [
        ("ok", machine()),
        ("fail [hardware]: GPU 1, 4: 2 uncorrectable memory errors ..., 0 allowed", both(UNCORRECTED, "2")),
        (f"fail [hardware]: GPU 1, 4: {AT_RESET}", both("remapped_rows.pending", "Yes")),
        (f"fail [hardware]: GPU 1, 4: {REPLACE}", both("remapped_rows.failure", "Yes")),
        ("ok", older()),
        (f"fail [hardware]: GPU 7: {AT_RESET}", older(pending=7)),
        ("not checked: remapped rows: nvidia-smi ...", machine(OLDER, remapped=HANGS)),
        ("not checked: GPU 0, 1: counts no memory errors (ECC: none)", machine(Smi("rtx4090-2"))),
        ("not checked: nvidia-smi describes 7 GPUs of 8", machine(Smi("h100-8", gone=[5]))),
        ("fail [hardware]: ... 7 GPUs of 8", machine(Smi("h100-8", {(1, UNCORRECTED): "1"}, gone=[5]))),
        (NO_NUMBER, changed(3, UNCORRECTED, "[Unknown Error]")),
        (NO_NUMBER, changed(3, UNCORRECTED, "nan")),
    ],
)
def test_bad_memory_is_a_fault_of_the_hardware(tmp_path: Path, expected: str, runner: FakeRunner) -> None:
    assert said(tmp_path, MEMORY, runner) == Like(expected)


def test_errors_are_counted_and_a_site_may_allow_some(tmp_path: Path) -> None:
    assert said(tmp_path / "allowed", MEMORY, changed(0, UNCORRECTED, "2"), uncorrected=2) == "ok"
    runner = changed(2, "ecc.errors.corrected.volatile.total", "12")
    assert MEMORY.run(node(tmp_path), runner, DEFAULTS).values['gpu_memory_errors_corrected{gpu="2"}'] == 12


# ---------------------------------------------------------------- temperatures and clocks

REASONS = "clocks_event_reasons.active"
SLOW = changed(2, REASONS, "0x0000000000000008")
SILENT = dict.fromkeys([(0, "temperature.gpu"), (0, "temperature.gpu.tlimit"), (0, REASONS)], "[N/A]")
HOT = changed(1, "temperature.gpu", "86", "rtx4090-2")
LOWERED = "the driver lowers the clocks because of the temperature"


@outcomes(
    "runner, limits",
    [
        ("ok", changed(5, REASONS, "0x0000000000000004"), {}),
        (f"warn [hardware]: GPU 5: {LOWERED}", changed(5, REASONS, "0x0000000000000020"), {}),
        ("warn [hardware]: GPU 5: at its temperature limit", changed(5, "temperature.gpu.tlimit", "-1"), {}),
        ("warn [hardware]: GPU 5: memory at or above 95 °C", changed(5, "temperature.memory", "97"), {}),
        ("ok", HOT, {}),
        ("warn [hardware]: GPU 1: at or above 85 °C", HOT, {"warn_celsius": 85}),
        ("not checked: GPU 0: tells neither temperature nor reasons ...", machine(Smi("h100-8", SILENT)), {}),
        ("not checked: ...", changed(0, REASONS, "0xzz"), {}),
    ],
)
def test_a_warm_gpu_is_a_warning(tmp_path: Path, expected: str, runner: FakeRunner, limits: dict[str, float]) -> None:
    assert said(tmp_path, THERMAL, runner, **limits) == Like(expected)


def test_slow_hardware_is_a_warning_and_in_the_next_run_a_fault(tmp_path: Path) -> None:
    for number, (bits, why) in enumerate([("08", "hardware slowdown"), ("48", "too hot"), ("88", "power brake")]):
        for seconds, status in [(1, "warn"), (29, "warn"), (0, "fail")]:  # the second one by hand
            found = said(tmp_path / str(number), THERMAL, changed(2, REASONS, f"0x00000000000000{bits}"))
            assert found.startswith(f"{status} [hardware]: GPU 2: slowed down: {why}")
            wait(node(tmp_path / str(number)), "gpu-thermal", seconds)


# ---------------------------------------------------------------- PCIe and NVLink

WIDTH, GENERATION, FABRIC = "pcie.link.width.current", "pcie.link.gen.gpucurrent", "fabric.state"
NARROW = Smi("h100-8", {(1, WIDTH): "8"})
SAVES_POWER = Smi("h100-8", {(1, WIDTH): "1", (1, GENERATION): "1", (1, "pstate"): "P8"})
NO_NVLINK = machine(Smi("rtx4090-2"), status=text("nvidia/nvlink-rtx4090-2.txt"))
LINK_OFF = machine(status=text("nvidia/nvlink-h100-8-one-link-off.txt"))
DARK = machine(status=text("nvidia/nvlink-h100-8-one-gpu-dark.txt"))
REPLAYS = machine(errors=text("nvidia/nvlink-errors-h100-8-replays.txt"))
HALF_COUNTED = machine(errors=Result(code=15, stdout=text("nvidia/nvlink-errors-h100-8.txt").stdout))
LANES = "GPU 1: PCIe has 8 of 16 lanes"


@outcomes(
    "runner",
    [
        ("ok", machine()),
        ("ok", NO_NVLINK),
        ("ok", changed(0, FABRIC, "state  Completed")),
        ("fail [node]: GPU 0: not part of the NVLink fabric: In Progress", changed(0, FABRIC, "In Progress")),
        ("warn [hardware]: GPU 1: PCIe runs at generation 3 of 5", changed(1, GENERATION, "3")),
        ("fail [hardware]: GPU 5: 17 of 18 NVLinks are active", LINK_OFF),
        ("fail [hardware]: GPU 4: 0 of 18 NVLinks are active", DARK),
        ("ok", REPLAYS),
        ("not checked: ...", HALF_COUNTED),
    ],
)
def test_links_are_judged_by_what_they_could_be(tmp_path: Path, expected: str, runner: FakeRunner) -> None:
    assert said(tmp_path, LINKS, runner) == Like(expected)


def test_nvlinks_that_nobody_tells_are_not_checked(tmp_path: Path) -> None:
    for what in ("status", "errors"):
        for answer in (HANGS, ABSENT, GARBAGE, Result(code=3)):
            assert said(tmp_path, LINKS, machine(**{what: answer})) == Like("not checked: ...nvidia-smi...")


@table(
    "runner, limits, runs",
    {
        "a narrow link is a fault in the next run": (
            machine(NARROW),
            {},
            [f"warn ...{LANES}", f"fail [hardware]: {LANES}"],
        ),
        "a GPU that saves power may have a slow link": (machine(SAVES_POWER), {}, ["ok", "ok", "ok"]),
        "a site names the lanes that it has": (machine(NARROW), {"pcie_width": 8}, ["ok", "ok"]),
        "a site expects no NVLinks": (DARK, {"nvlinks": 0}, ["ok"]),
    },
)
def test_runs_in_a_row(tmp_path: Path, runner: FakeRunner, limits: dict[str, float], runs: list[str]) -> None:
    for expected in runs:
        assert said(tmp_path, LINKS, runner, **limits) == Like(expected)
        wait(node(tmp_path), "gpu-links", 30)


def test_errors_of_nvlinks_count_while_they_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    assert said(tmp_path, LINKS, machine()) == "ok"
    now += 60
    new = "NVLink Replay Errors: 143 in the last hour, NVLink Recovery Errors: 3 in the last hour"
    assert said(tmp_path, LINKS, REPLAYS) == f"warn [hardware]: GPU 6: {new}"
    assert said(tmp_path, LINKS, REPLAYS, nvlink_errors=143) == "ok"
    now += 3600
    assert said(tmp_path, LINKS, REPLAYS) == "ok", "nothing has come since"
    assert said(tmp_path, LINKS, machine()) == "ok", "the driver was loaded anew"
