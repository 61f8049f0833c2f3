"""A picture of a report: stacked bars over time, one panel for CPU hours and one for GPU hours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import USAGE, Failure
from cli.health.present import plain
from cli.usage.present import period
from cli.usage.times import intervals
from cli.usage.totals import Row, Usage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")

MOST_COLORS = 8
"""Groups with a color of their own; the others are one gray stack. More colors could not be told apart."""

_COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#332288")
"""The palette of Okabe and Ito, which people who do not see all colors can tell apart, and indigo instead of black."""

_OTHERS = "#999999"

MOST_TICKS = 12
"""Dates below the bars at most, so that they do not run into each other."""


def check_path(path: Path) -> None:
    """Raises Failure for a file that cannot become a picture, before anything is asked."""
    if path.suffix.lower() not in SUFFIXES:
        named = f"has the extension {path.suffix!r}" if path.suffix else "has no extension"
        raise Failure(f"--plot {path}: {named}; write a name that ends with .png or .svg", code=USAGE)
    if not path.resolve().parent.is_dir():
        raise Failure(f"--plot {path}: there is no directory {path.resolve().parent}", code=USAGE)


MOST_LETTERS = 30
"""Of a name in the legend: users may make up accounts of a thousand, and the bars would have no room."""


def label(group: Sequence[str]) -> str:
    """A group in the legend."""
    names = (plain(name) for name in group)
    return " / ".join(name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…" for name in names)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One color: a group, and its hours in each interval."""

    name: str
    color: str
    cpu_hours: tuple[float, ...]
    gpu_hours: tuple[float, ...]


def stacks(usage: Usage) -> list[Stack]:
    """The group with the largest shares first. All beyond the colors are summed up as `N others` at the end."""
    starts = [start for start, _ in intervals(usage.start, usage.end, usage.step)]
    size: dict[tuple[str, ...], float] = defaultdict(float)
    for row in usage.rows:
        size[row.group] += row.cpu_hours / usage.total.cpu_hours
        size[row.group] += row.gpu_hours / usage.total.gpu_hours if usage.has_gpus else 0
    order = sorted(size, key=lambda group: (-size[group], group))
    own = order if len(order) <= MOST_COLORS else order[:MOST_COLORS]
    parts = [(label(group), color, {group}) for group, color in zip(own, _COLORS, strict=False)]
    if len(order) > len(own):
        parts.append((f"{len(order) - len(own)} others", _OTHERS, set(order[MOST_COLORS:])))
    return [
        Stack(
            name=name,
            color=color,
            cpu_hours=_over_time(usage, starts, groups, lambda row: row.cpu_hours),
            gpu_hours=_over_time(usage, starts, groups, lambda row: row.gpu_hours),
        )
        for name, color, groups in parts
    ]


def _over_time(
    usage: Usage, starts: Sequence[datetime], groups: set[tuple[str, ...]], hours: Callable[[Row], float]
) -> tuple[float, ...]:
    found = dict.fromkeys(starts, 0.0)
    for row in usage.rows:
        if row.group in groups:
            found[row.start] += hours(row)
    return tuple(found.values())


def tick_labels(starts: Sequence[datetime]) -> list[str]:
    """Days, with the year below where it changes."""
    labels = []
    year = None
    for start in starts:
        labels.append(f"{start.day} {start:%b}" + (f"\n{start.year}" if start.year != year else ""))
        year = start.year
    return labels


def plot(usage: Usage, path: Path, *, title: str) -> None:
    """Write the picture; what the file had before is replaced. Raises Failure if it cannot be written."""
    import matplotlib as mpl  # noqa: PLC0415  it takes half a second, which only this option should cost
    from matplotlib.figure import Figure  # noqa: PLC0415  without pyplot, so that no display is ever looked for

    shown = stacks(usage)
    panels = ["cpu_hours", "gpu_hours"] if usage.has_gpus else ["cpu_hours"]
    # The same report gives the same bytes, so that pictures can be kept under version control.
    with mpl.rc_context({"svg.hashsalt": "slurmstack", "font.size": 10, "text.parse_math": False}):
        figure = Figure(figsize=(11, 2.2 + 2.8 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            _bars(axis, usage, shown, panel)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        axes[0].set_title(
            f"{period(usage.start, usage.end)}, by {usage.step}", loc="left", fontsize=10, color="#555555"
        )
        handles, names = axes[0].get_legend_handles_labels()
        if handles:  # the topmost stack first, as in the picture
            heading = " / ".join(usage.by)
            figure.legend(handles[::-1], names[::-1], title=heading, loc="outside right upper", frameon=False)
        try:
            metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise Failure(f"--plot {path}: cannot be written: {error.strerror}") from error


def _bars(axis: Axes, usage: Usage, shown: Sequence[Stack], panel: str) -> None:
    """One panel: a bar for each interval, as wide as the interval."""
    spans = intervals(usage.start, usage.end, usage.step)
    starts = [start.timestamp() for start, _ in spans]
    widths = [end.timestamp() - start.timestamp() for start, end in spans]
    bottom = [0.0] * len(spans)
    for stack in shown:
        hours: tuple[float, ...] = getattr(stack, panel)
        axis.bar(
            starts, hours, widths, bottom, align="edge", color=stack.color, label=stack.name, edgecolor="white",
            linewidth=0.6,
        )  # fmt: skip
        bottom = [below + height for below, height in zip(bottom, hours, strict=True)]
    if not any(bottom):
        axis.text(0.5, 0.5, "no job ran", transform=axis.transAxes, ha="center", color="#555555")
    kind = "CPU" if panel == "cpu_hours" else "GPU"
    axis.set_ylabel(f"{kind} hours per {usage.step}")
    axis.set_ylim(0, max(max(bottom) * 1.08, 1e-3))
    axis.set_xlim(starts[0], starts[-1] + widths[-1])
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    shown_ticks = range(0, len(spans), ceil(len(spans) / MOST_TICKS))
    axis.set_xticks([starts[index] for index in shown_ticks], tick_labels([spans[index][0] for index in shown_ticks]))
    axis.grid(axis="y", color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
