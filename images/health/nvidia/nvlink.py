"""What `nvidia-smi nvlink` says about the links between the GPUs of a node.

Forms of its answers, as seen in public bug reports and documentation: `Link 3: 26.562 GB/s` and `Link 3: <inactive>`
under each GPU's line; instead of all links `NVML: Unable to retrieve NVLink information as all links are inActive`, or
`Device does not have or support Nvlink`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from images.common.command import Result as Answer
from images.common.command import Runner
from images.health.contract import Node, Result
from images.health.nvidia import smi
from images.health.state import rises
from images.health.verdict import UnknownError, fail, not_checked, ok, warn

_GPU: Final = r"GPU (\d{1,4}): ([^(]+?)\s*(?:\(UUID: [^)]*\))?"
_LINK: Final = r"(?i)Link (\d+): (?:(?P<off><[a-z]+>)|[\d.]+ GB/s)"
_COUNTER: Final = r"Link (\d+): (\w[\w ]*): (\d{1,20})"
_DARK: Final = "all links are inactive"
_NONE: Final = "not have or support nvlink"
_REMEMBERED: Final = "nvlink-errors"
_JUDGED: Final = ("Replay Errors", "Recovery Errors")
"""Counters that should not rise: NVIDIA's DCGM calls one new error of these kinds a failure
(modules/health/DcgmHealthWatch.cpp, DCGM_LIMIT_MAX_NVLINK_ERROR)."""


@dataclass(frozen=True, kw_only=True)
class Links:
    """The links of one GPU. A GPU without NVLink has none, neither active nor inactive."""

    index: int
    model: str
    active: int = 0
    inactive: int = 0
    dark: bool = False
    """All are inactive, and nvidia-smi does not tell how many."""


def status(runner: Runner) -> list[Links]:
    """The links of every GPU. Raises UnknownError."""
    return parse_status(smi.call(runner, "nvlink", "--status"))


def parse_status(answer: Answer) -> list[Links]:
    """The same, of an answer that there is."""
    found: list[Links] = []
    for line in (line.strip() for line in answer.stdout.splitlines()):
        last = found[-1] if found else None
        if header := re.fullmatch(_GPU, line):
            found.append(Links(index=int(header[1]), model=header[2]))
        elif last is not None and (link := re.fullmatch(_LINK, line)):
            on = link["off"] is None
            found[-1] = Links(
                index=last.index, model=last.model, active=last.active + on, inactive=last.inactive + (not on)
            )
        elif last is not None and _DARK in line.lower():
            found[-1] = Links(index=last.index, model=last.model, dark=True)
        elif line and not (last is not None and _NONE in line.lower()):
            raise UnknownError(f"{smi.TOOL} nvlink says something unexpected: {line[:80]}")
    if not answer.ok and not found:
        raise UnknownError(f"{smi.TOOL} nvlink ended with {answer.code}: {answer.message[:80]}")
    return found


def judge(links: Sequence[Links], wanted: float) -> list[Result]:
    """Active links against `wanted`; if that is negative, against the best GPU of the same model on this node.

    All GPUs of a machine have the same number of links on boards with NVLink switches and on full meshes. Where cards
    are joined in pairs by bridges and some are not, `wanted` has to be set: 0 asks for none.
    """
    best: dict[str, int] = {}
    for each in links:
        best[each.model] = max(best.get(each.model, 0), each.active)
    found = []
    for each in links:
        needed = int(wanted) if wanted >= 0 else best[each.model]
        values = {f'gpu_nvlinks_active{{gpu="{each.index}"}}': float(each.active)} if _has_any(each) else {}
        if each.active < needed:
            message = smi.about([each.index], f"{each.active} of {needed} NVLinks are active")
            found.append(fail("hardware", message, values))
        else:
            found.append(ok(**values))
    return found


def _has_any(links: Links) -> bool:
    return bool(links.active or links.inactive or links.dark)


def errors(node: Node, runner: Runner, allowed: float) -> list[Result]:
    """Errors of the links in the last hour: a warning, since a link that fails gets an Xid of its own."""
    try:
        answer = smi.call(runner, "nvlink", "--errorcounters")
    except UnknownError as error:
        return [not_checked(str(error))]
    if not answer.ok:
        return [not_checked(f"{smi.TOOL} nvlink --errorcounters: {answer.message[:80]}")]
    counters = parse_errors(answer.stdout)
    if not counters:
        return [not_checked(f"{smi.TOOL} nvlink --errorcounters names no counters")]
    rise = rises(node, _REMEMBERED, {str(index): kinds for index, kinds in counters.items()})
    return [judge_errors(index, kinds, rise[str(index)].hour, allowed) for index, kinds in counters.items()]


def parse_errors(text: str) -> dict[int, dict[str, int]]:
    """GPU -> counter -> the sum of all links, since the driver was loaded."""
    sums: dict[int, dict[str, int]] = {}
    gpu = None
    for line in (line.strip() for line in text.splitlines()):
        if header := re.fullmatch(_GPU, line):
            gpu = int(header[1])
        elif gpu is not None and (counter := re.fullmatch(_COUNTER, line)):
            kinds = sums.setdefault(gpu, {})
            kinds[counter[2]] = kinds.get(counter[2], 0) + int(counter[3])
    return sums


def judge_errors(index: int, kinds: Mapping[str, int], rise: Mapping[str, int], allowed: float) -> Result:
    """One GPU's counters, and by how much they rose."""
    bad = {kind: rise[kind] for kind in _JUDGED if rise.get(kind, 0) > allowed}
    values = {
        f'gpu_nvlink_errors{{gpu="{index}",kind="{kind}"}}': float(count)
        for kind, count in kinds.items()
        if kind.endswith("Errors")
    }
    if not bad:
        return ok(**values)
    text = ", ".join(f"NVLink {kind}: {count} in the last hour" for kind, count in bad.items())
    return warn("hardware", smi.about([index], text), values)
