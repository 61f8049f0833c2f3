"""health: look at this node's health by hand.

    health list                     all checks, when they run, and whether this node has what they look at
    health run CHECK [--json]       run one, in whatever context it is declared for

Exit codes of `run`: 0 well, or a warning; 1 failed; 2 no such check; 3 not checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from images.health.contract import Check, Node, Status
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_jobs
from images.health.registry import Registry, find_checks, fits
from images.health.report import line_of
from images.health.runner import Outcome, run_checks
from images.health.verdict import not_checked

CODES: Final = {Status.OK: 0, Status.WARN: 0, Status.FAIL: 1, Status.NOT_CHECKED: 3}
USAGE: Final = 2


@dataclass(kw_only=True)
class ByHand:
    """What an administrator asked for."""

    local: Local
    registry: Registry
    say: Callable[[str], None]
    complain: Callable[[str], None]

    def run(self, arguments: Sequence[str]) -> int:
        """Returns the exit code."""
        if list(arguments) == ["list"]:
            return self._list()
        words = [word for word in arguments if word != "--json"]
        if len(words) == 2 and words[0] == "run":
            return self._run(words[1], as_json="--json" in arguments)
        self.complain("usage: health list | health run CHECK [--json]")
        return USAGE

    def _list(self) -> int:
        checks = self.registry.checks
        width = max((len(name) for name in [*checks, *self.registry.broken]), default=0)
        for name in sorted(checks):
            self.say(f"{name:<{width}}  {self._when(checks[name]):<24}  {checks[name].summary}")
        for name, why in sorted(self.registry.broken.items()):
            self.say(f"{name:<{width}}  {'never':<24}  {why}")
        return 0

    def _when(self, check: Check) -> str:
        if check.name in self.local.off:
            return "turned off"
        if not fits(check, self.local.node):
            return f"never: no {check.hardware}"
        return ", ".join(sorted(check.contexts))

    def _run(self, name: str, *, as_json: bool) -> int:
        node = with_jobs(self.local.node)
        if name in self.registry.broken:
            outcome = Outcome(result=not_checked(self.registry.broken[name]))
        elif name not in self.registry.checks:
            self.complain(f"there is no check {name!r}; `health list` shows all")
            return USAGE
        else:
            outcome = self._outcome(self.registry.checks[name], node)
        result = outcome.result
        if as_json:
            text = {"node": node.name, "check": name, "status": result.status.value, "fault": result.fault}
            more = {"message": result.message, "values": dict(result.values), "seconds": round(outcome.seconds, 4)}
            self.say(json.dumps(text | more))
        else:
            self.say(line_of(name, result).removesuffix(":"))
            for value, figure in sorted(result.values.items()):
                self.say(f"  {value} {figure:g}")
        return CODES[result.status]

    def _outcome(self, check: Check, node: Node) -> Outcome:
        if not fits(check, node):
            return Outcome(result=not_checked(f"this node should have no {check.hardware}"))
        return run_checks([check], node, self.local.thresholds)[check.name]


def main() -> int:
    """Entry point."""
    prepare_environment()

    def complain(text: str) -> None:
        sys.stderr.write(text + "\n")

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")

    local = find_local(pod_environment())
    if local.problem:
        complain(local.problem)
    return ByHand(local=local, registry=find_checks(), say=say, complain=complain).run(sys.argv[1:])
