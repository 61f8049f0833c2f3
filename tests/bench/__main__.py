"""`python -m tests.bench`, which `make bench` calls: measures, keeps the figures, compares them with earlier ones."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from tests.bench import record as records
from tests.bench.compare import compare, differences, other_machine
from tests.bench.parts import PARTS, Part, UnusableError, find, measure
from tests.bench.record import Record, RecordError
from tests.bench.report import markdown, print_comparison, print_record, read_peers
from tests.bench.row import Measuring

WORSE, USAGE, FAILED, INTERRUPTED = 1, 2, 3, 130

DESCRIPTION = """\
Measures how long the things take that a user waits for, each several times, and shows median and spread beside the
goal. Without PARTS everything is measured, in about an hour and a half; a goal that is missed is marked, never hidden.
The machine should do nothing else meanwhile.
"""

EPILOG = """\
parts:
{parts}

examples:
  python -m tests.bench                                   everything; kept in docs/benchmarks/
  python -m tests.bench array start --runs 10             two parts, ten times each; kept in bench-results/
  python -m tests.bench scaling --compare docs/benchmarks/2026-11-23-550b4e8-parts.json
                                                          measure, then say what became better or worse
  python -m tests.bench --compare OLD.json NEW.json       only compare
  python -m tests.bench --show RUN.json --markdown        print the tables of a kept run in Markdown

exit status: 0 well; 1 a row is worse and --fail-on-worse is given; 2 wrong usage, a file that cannot be used, or runs
of different machines without --other-machine; 3 a part of the (newer) run failed, and no row ended it with 1. What each
row means and when two runs differ: docs/benchmarks/README.md.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parts = "\n".join(f"  {part.name:<11} {part.about}" for part in PARTS)
    made = argparse.ArgumentParser(
        prog="python -m tests.bench", description=DESCRIPTION, epilog=EPILOG.format(parts=parts),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("parts", nargs="*", metavar="PARTS", help="what to measure; all by default")
    made.add_argument("--list", action="store_true", help="print the parts and measure nothing")
    made.add_argument("--runs", type=_positive, metavar="N", help="measure each row N times, not as often as it says")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    made.add_argument(
        "--compare", type=Path, nargs="+", metavar=("OLD.json", "NEW.json"),
        help="compare this run with an earlier one, or two earlier ones with each other",
    )  # fmt: skip
    made.add_argument("--fail-on-worse", action="store_true", help="exit with 1 if a compared row is worse")
    made.add_argument(
        "--other-machine", action="store_true",
        help="compare although the runs are of different machines (CPU, cores or memory), which is else refused",
    )  # fmt: skip
    made.add_argument("--show", type=Path, metavar="FILE", help="print the tables of a kept run and measure nothing")
    made.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    return made


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    command = parser()
    options = command.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 180)
    if options.list:
        for part in PARTS:
            print(f"{part.name:<11} {part.about}")
        return 0
    try:
        parts = find(options.parts)
    except ValueError as error:
        command.error(str(error))
    if problem := _problem(options):
        command.error(problem)
    try:
        compared = [records.read(file) for file in options.compare or []]
        kept = records.read(options.show) if options.show else compared[1] if len(compared) == 2 else None
        if compared and not options.other_machine:
            _same_machine(compared[0].machine, records.machine() if kept is None else kept.machine)
        new = _run(parts, options) if kept is None else kept
        if options.markdown:
            print(markdown(new, read_peers()))
        elif len(compared) < 2:
            print_record(new, read_peers(), console)
        worse = _compare(compared[0], new, console) if compared else False
    except (RecordError, UnusableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    return WORSE if worse and options.fail_on_worse else FAILED if new.failed and not options.show else 0


def _problem(options: argparse.Namespace) -> str:
    """What is wrong with the options, beyond what argparse sees."""
    compared = options.compare or []
    if len(compared) > 2:
        return "--compare takes one file or two; parts come before it"
    if others := [str(file) for file in compared if file.suffix != ".json"]:
        return f"--compare: {others[0]} is no JSON file; parts come before --compare"
    if options.parts and (options.show or len(compared) == 2):
        return "nothing is measured with --show or two files to compare: leave the parts out"
    for name, given in (("--fail-on-worse", options.fail_on_worse), ("--other-machine", options.other_machine)):
        if given and not compared:
            return f"{name} needs --compare"
    return ""


def _same_machine(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises UnusableError where the machines are different ones."""
    if found := other_machine(old, new):
        raise UnusableError(
            f"the runs are of different machines: {', '.join(found)}; --other-machine compares them nevertheless"
        )


def _run(parts: Sequence[Part], options: argparse.Namespace) -> Record:
    """Measure, and keep what there is, however it ends."""
    bench = Measuring(runs=options.runs)
    record = records.begin([part.name for part in parts], complete=len(parts) == len(PARTS))
    try:
        measure(parts, bench)
    except UnusableError:
        raise
    except KeyboardInterrupt:
        record.failed = f"{bench.part}: interrupted"
    except Exception as error:  # noqa: BLE001  what was measured in an hour is kept, whatever a later part meets
        traceback.print_exc(limit=-4)
        record.failed = f"{bench.part}: {(str(error).strip() or repr(error)).splitlines()[0]}"
    record.rows, record.left_out = bench.rows, bench.left_out
    path = options.json or records.file_for(record)
    records.write(record, path)
    kind = "" if record.complete else f", only of these parts: {', '.join(record.parts)}"
    print(f"raw values are in {path}{kind}", file=sys.stderr)
    if record.failed:
        print(f"error: {record.failed}", file=sys.stderr)
    elif options.compare and not record.rows:
        raise UnusableError("nothing was measured that could be compared")
    return record


def _compare(old: Record, new: Record, console: Console) -> bool:
    """Print the comparison; whether a row is worse."""
    found = compare(old, new)
    if all(item.verdict in {"new", "gone"} for item in found):
        raise UnusableError("the two runs have no row in common")
    print_comparison(found, differences(old, new), console)
    return any(item.verdict == "worse" for item in found)


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return value


def _interrupt(number: int, frame: object) -> NoReturn:
    """However it is stopped, it takes away what it has made."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):  # both by name: started in the background, Python would ignore Ctrl-C
        signal.signal(stop, _interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
