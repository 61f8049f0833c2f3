"""Xids in the kernel's log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_presence, gpu_xid
from images.health.contract import Node, Status, Thresholds
from images.health.contract import Result as Found
from images.health.nvidia import xid_lines
from tests.unit.images.health.gpus import ABSENT, DEFAULTS, DMESG, HANGS, machine, node, text

TABLE = json.loads((Path(xid_lines.__file__).with_name("xid_table.json")).read_text(encoding="utf-8"))
QUIET = text("kernel/quiet.log").stdout


def log(name: str) -> Result:
    return text(f"kernel/{name}.log")


def look(where: Node, dmesg: Result) -> Found:
    """What the check finds once the GPUs' addresses are known."""
    runner = machine(dmesg=dmesg)
    gpu_presence.run(where, runner, DEFAULTS)
    return gpu_xid.run(where, runner, DEFAULTS)


def line(number: int, words: str, seconds: float = 99990.0, bus: str = "0000:18:00") -> str:
    return f"<3>[{seconds:.6f}] NVRM: Xid (PCI:{bus}): {number}, {words}\n"


def test_a_quiet_log_is_well(tmp_path: Path) -> None:
    result = look(node(tmp_path), log("quiet"))

    assert (result.status, result.message, result.values) == (Status.OK, "", {})


def test_a_gpu_off_the_bus_is_a_fault_of_the_hardware_and_named_by_its_index(tmp_path: Path) -> None:
    result = look(node(tmp_path), log("fallen-off"))

    assert (result.status, result.fault) == (Status.FAIL, "hardware")
    assert result.message == (
        "GPU 3: Xid 79, GPU has fallen off the bus; GPU 3: Xid 154, the driver asks for: Node Reboot Required"
    )
    assert result.values == {'gpu_xids{number="79"}': 1, 'gpu_xids{number="154"}': 1}


def test_a_gpu_is_named_by_its_address_where_nvidia_smi_has_never_answered(tmp_path: Path) -> None:
    result = gpu_xid.run(node(tmp_path), machine(HANGS, dmesg=log("fallen-off")), DEFAULTS)

    assert result.message.startswith("0000:5d:00: Xid 79, GPU has fallen off the bus")


def test_an_error_of_an_application_is_told_to_its_user_for_some_minutes(tmp_path: Path) -> None:
    where = node(tmp_path)
    (where.root / "proc/uptime").write_text("91100.00 0.0\n")

    result = look(where, log("application"))

    assert (result.status, result.fault) == (Status.WARN, "user")
    assert result.message == "GPU 0, 1: Xid 31, GPU memory page fault; GPU 0: Xid 43, GPU stopped processing"

    (where.root / "proc/uptime").write_text("91700.00 0.0\n")
    later = look(where, log("application"))
    assert (later.status, later.message) == (Status.OK, "")
    assert later.values['gpu_xids{number="31"}'] == 2


def test_an_xid_that_the_catalogue_says_to_ignore_is_only_counted(tmp_path: Path) -> None:
    result = look(node(tmp_path), Result(code=0, stdout=QUIET + line(106, "SMBPBI test")))

    assert (result.status, result.message, result.values) == (Status.OK, "", {'gpu_xids{number="106"}': 1})


def test_an_unknown_xid_is_a_warning_for_a_day(tmp_path: Path) -> None:
    where = node(tmp_path)

    result = look(where, log("unknown"))

    assert (result.status, result.fault) == (Status.WARN, "hardware")
    assert result.message == "GPU 6: Xid 999, not in the table of known Xids"
    (where.root / "proc/uptime").write_text("200000.00 0.0\n")
    assert look(where, log("unknown")).status is Status.OK


def test_a_fault_holds_until_the_driver_says_that_nothing_is_left_to_recover(tmp_path: Path) -> None:
    lines = log("ecc-then-reset").stdout.splitlines(keepends=True)

    before = look(node(tmp_path / "1"), Result(code=0, stdout="".join(lines[:-1])))
    after = look(node(tmp_path / "2"), Result(code=0, stdout="".join(lines)))
    once_more = look(node(tmp_path / "3"), Result(code=0, stdout="".join(lines) + line(95, "x", bus="0000:9a:00")))

    assert before.status is Status.FAIL
    assert "GPU 4: Xid 48, uncorrectable memory error (ECC)" in before.message
    assert after.status is Status.OK
    assert (once_more.status, once_more.message) == (Status.FAIL, "GPU 4: Xid 95, uncontained memory error")


@pytest.mark.parametrize(
    ("action", "status"),
    [("0x1 (GPU Reset Required)", "fail"), ("0x4 (Drain and Reset)", "fail"), ("0x3 (Drain P2P)", "warn")],
)
def test_the_recovery_that_the_driver_asks_for_is_told(tmp_path: Path, action: str, status: str) -> None:
    words = f"pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to {action}"

    result = look(node(tmp_path), Result(code=0, stdout=QUIET + line(154, words)))

    assert result.status is Status(status)
    assert result.message == f"GPU 0: Xid 154, the driver asks for: {action[5:-1]}"


def test_a_log_that_is_read_again_counts_once(tmp_path: Path) -> None:
    where = node(tmp_path)

    assert look(where, log("fallen-off")) == look(where, log("fallen-off"))


def test_one_gpus_recovery_does_not_settle_another_ones_fault(tmp_path: Path) -> None:
    both = log("fallen-off").stdout + "".join(log("ecc-then-reset").stdout.splitlines(keepends=True)[-1:])

    assert look(node(tmp_path), Result(code=0, stdout=both)).status is Status.FAIL


def test_a_fault_that_newer_lines_pushed_out_of_the_log_holds(tmp_path: Path) -> None:
    where = node(tmp_path)
    look(where, log("fallen-off"))
    last = log("fallen-off").stdout.splitlines()[-1]

    for newer in ("<6>[91300.0] audit: 1\n", "<6>[91400.0] audit: 2\n"):
        result = look(where, Result(code=0, stdout=f"{last}\n{newer}"))
        assert result.status is Status.FAIL
        assert "GPU 3: Xid 79" in result.message
        assert result.values['gpu_xids{number="79"}'] == 1
        last = newer.strip()


@pytest.mark.parametrize("emptied", ["", "<6>[99999.0] eth0: up\n"])
def test_an_emptied_log_settles_a_fault(tmp_path: Path, emptied: str) -> None:
    where = node(tmp_path)
    look(where, log("fallen-off"))

    assert look(where, Result(code=0, stdout=emptied)).status is Status.OK
    assert look(where, Result(code=0, stdout=emptied)).status is Status.OK


def test_a_new_start_of_the_machine_settles_a_fault(tmp_path: Path) -> None:
    where = node(tmp_path)
    look(where, Result(code=0, stdout=line(79, "GPU has fallen off the bus.") + QUIET))
    assert look(where, Result(code=0, stdout=QUIET)).status is Status.FAIL

    (where.root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    assert look(where, Result(code=0, stdout=QUIET)).status is Status.OK


def test_a_divided_gpu_and_an_older_form_of_the_line_are_understood() -> None:
    events = xid_lines.find(
        [
            "NVRM: Xid (PCI:0000:25:00 GPU-I:05): 95, pid=1, name=x, Uncontained: ...",
            "[  12.5] NVRM: Xid (0000:03:00): 79, GPU has fallen off the bus.",
            "<4>[   12.500000] NVRM: Xid (PCI:00000000:3B:00.0): 46",
        ]
    )

    assert [(event.bus, event.number, event.judgement, event.seconds) for event in events] == [
        ("0000:25:00", 95, "fail", None),
        ("0000:03:00", 79, "fail", 12.5),
        ("0000:3b:00", 46, "fail", 12.5),
    ]


def test_errors_of_nvlink_5_are_judged_by_the_severity_in_the_line(tmp_path: Path) -> None:
    result = gpu_xid.run(node(tmp_path), machine(dmesg=log("nvlink5")), DEFAULTS)

    assert result.status is Status.FAIL
    assert "0009:01:00: Xid 149, NVLink error (NETIR)" in result.message
    events = {event.number: event.judgement for event in xid_lines.find(log("nvlink5").stdout.splitlines())}
    assert events == {145: "warn", 149: "fail"}


def test_errors_of_an_nvswitch_are_judged_by_the_severity_in_the_line(tmp_path: Path) -> None:
    where = node(tmp_path)
    (where.root / "proc/uptime").write_text("131500.00 0.0\n")

    result = look(where, log("nvswitch"))

    assert (result.status, result.fault) == (Status.FAIL, "hardware")
    assert result.message == (
        "nvswitch3: SXid 12028, error of an NVSwitch; nvswitch0: SXid 20034, fatal error of an NVSwitch"
    )


@pytest.mark.parametrize(
    "words",
    [
        "<6>[99990.0] NVRM: Xid (PCI:[4711]: segfault at 0 ip 0 sp 0 error 4",
        "<6>[99990.0] mine[4711]: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.",
        '<6>[99990.0] audit: comm="NVRM: Xid (PCI:0000:5d:00): 79"',
    ],
)
def test_what_only_looks_like_an_xid_is_none(tmp_path: Path, words: str) -> None:
    assert look(node(tmp_path), Result(code=0, stdout=f"{QUIET}{words}\n")).status is Status.OK


def test_a_site_may_tell_warnings_longer(tmp_path: Path) -> None:
    where = node(tmp_path)
    (where.root / "proc/uptime").write_text("200000.00 0.0\n")
    runner = machine(dmesg=log("unknown"))

    assert gpu_xid.run(where, runner, Thresholds({"gpu-xid": {"warn_seconds": 200000}})).status is Status.WARN


def test_without_times_in_the_log_nothing_is_too_old(tmp_path: Path) -> None:
    bare = "<4>NVRM: Xid (PCI:0000:18:00): 31, pid=1, name=x, y\n"

    assert look(node(tmp_path), Result(code=0, stdout=QUIET + bare)).status is Status.WARN


def test_a_node_where_nothing_shows_an_nvidia_driver_is_not_checked(tmp_path: Path) -> None:
    where = node(tmp_path)
    runner = machine(ABSENT, dmesg=Result(code=0, stdout="<6>[    0.000000] Linux version 6.8\n"))

    assert gpu_xid.run(where, runner, DEFAULTS).status is Status.NOT_CHECKED
    (where.root / "proc/driver/nvidia").mkdir(parents=True)
    (where.root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05")
    assert gpu_xid.run(where, runner, DEFAULTS).status is Status.OK


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HANGS, "dmesg did not end in 4 s"),
        (ABSENT, "there is no dmesg"),
        (
            Result(code=1, stderr="dmesg: read kernel buffer failed: Operation not permitted\n"),
            "dmesg: read kernel buffer failed: Operation not permitted",
        ),
        (Result(code=0, stdout="Usage: dmesg [options]\n"), "dmesg says something unexpected: Usage: dmesg [options]"),
    ],
)
def test_a_log_that_cannot_be_read_is_not_checked(tmp_path: Path, answer: Result, why: str) -> None:
    result = look(node(tmp_path), answer)

    assert (result.status, result.message) == (Status.NOT_CHECKED, why)


def test_every_entry_of_the_table_has_a_judgement_that_the_table_explains() -> None:
    assert TABLE["source"]["url"].startswith("https://docs.nvidia.com/deploy/xid-errors/")
    for number, entry in TABLE["xids"].items():
        assert number.isdecimal()
        assert entry["name"]
        assert entry["meaning"]
        judgement = entry.get("judgement") or TABLE["by_action"][entry["action"]]
        assert judgement in TABLE["judgements"]
        assert ("judgement" in entry) == ("why" in entry), "an own judgement needs its reason"


KNOWN = {
    "fail": [46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140],
    "warn": [32, 56, 63, 92, 94, 157],
    "user": [8, 13, 31, 43, 45, 68, 137],
    "ignore": [14, 106, 107],
}


@pytest.mark.parametrize(("number", "judgement"), [(n, judgement) for judgement, ns in KNOWN.items() for n in ns])
def test_well_known_xids_are_judged_as_the_catalogue_says(number: int, judgement: str) -> None:
    (event,) = xid_lines.find([line(number, "pid=1, name=x, words").rstrip()])

    assert event.judgement == judgement


def test_dmesg_is_the_only_program_that_is_started(tmp_path: Path) -> None:
    runner = machine()
    gpu_xid.run(node(tmp_path), runner, DEFAULTS)

    assert runner.commands == [DMESG]
