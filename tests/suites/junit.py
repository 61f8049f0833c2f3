"""What pytest has written into its JUnit file (family xunit1, which names each test's file)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Tests of one run, by their ids as pytest takes them."""

    passed: frozenset[str] = field(default_factory=frozenset)
    failed: frozenset[str] = field(default_factory=frozenset)
    """With an error in set-up or teardown, too."""
    skipped: frozenset[str] = field(default_factory=frozenset)
    crashed: frozenset[str] = field(default_factory=frozenset)
    """Of those that failed: in these a worker of pytest-xdist has ended."""

    @property
    def failed_modules(self) -> tuple[str, ...]:
        """Files with a test that failed, in order."""
        return tuple(sorted({test.partition("::")[0] for test in self.failed}))


def read(path: Path) -> Outcome | None:
    """What a run has written; None where it did not come to its end."""
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except (OSError, ET.ParseError):
        return None
    passed, failed, skipped, crashed = set(), set(), set(), set()
    for case in cases:
        test = _id(case)
        error = case.find("error")
        if case.find("failure") is not None or error is not None:
            failed.add(test)
            if error is not None and "crashed while running" in error.get("message", ""):
                crashed.add(test)
        elif case.find("skipped") is not None:
            skipped.add(test)
        else:
            passed.add(test)
    return Outcome(
        passed=frozenset(passed - failed),
        failed=frozenset(failed),
        skipped=frozenset(skipped - passed - failed),
        crashed=frozenset(crashed),
    )


def _id(case: ET.Element) -> str:
    """`tests/unit/test_x.py::Class::test_y[z]`; of a file that cannot be collected, the file."""
    file, name = case.get("file", ""), case.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    if name == module:
        return file
    within = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(filter(None, (file, *within.split("."), name)))
