"""`slurmstack:slurm`: version and settings of Slurm itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from config.base import Section

_LINES_OF_OTHER_SECTIONS = {
    "nodename": "worker_nodes",
    "nodeset": "worker_nodes",
    "downnodes": "worker_nodes",
    "partitionname": "partitions",
    "include": "settings, key by key",
    "clustername": "slurm.cluster_name",
}

_KEYS_OF_THE_PODS = frozenset(
    {"slurmctldhost", "slurmctldport", "slurmdport", "slurmuser", "slurmduser", "statesavelocation", "slurmdspooldir"}
)
"""Where the daemons are and keep their data: pods, Services and volumes are made for our values, and with others the
cluster would lose its queue or be cut off."""

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr


def _setting_value(value: object) -> object:
    """Looked at before its type: else there is a problem for each of the types."""
    parts = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(part, bool | int | str) or (isinstance(part, float) and isfinite(part)) for part in parts):
        raise ValueError("is no value of slurm.conf: write text, a number, true, false or a list of these")
    return value


SettingValue = Annotated[Scalar | tuple[Scalar, ...], BeforeValidator(_setting_value)]
"""A value of slurm.conf. true and false become YES and NO, a list is joined by commas."""


_PLAIN = r'"#\x00-\x1f\x7f-\x9f\u2028\u2029'
_VALUE = re.compile(rf'"[^{_PLAIN}]*"|[^\s{_PLAIN}]*[^\s\\{_PLAIN}]')


def _problem_of(value: SettingValue) -> str | None:
    """What is wrong with a value, before the words "in the value of KEY" and after them.

    Slurm ends a value at a blank, unless all of it is in double quotes (`keyvalue_pattern` of its
    src/common/parse_config.c), and takes what follows for another key.
    """
    text = _as_text(value)
    if not text:
        return "has no value for {}, which Slurm can't read: leave the key out"
    if not _VALUE.fullmatch(text):
        return (
            "has a blank, '#', a double quote, a line break or a backslash at its end in the value of {}: take it "
            "away, or put one pair of double quotes around all of the value, as in '\"CPU=1.0, Mem=0.25G\"'"
        )
    return None


def _settings(settings: dict[str, SettingValue]) -> dict[str, SettingValue]:
    seen: dict[str, str] = {}
    wrong: list[str] = []
    for key, value in settings.items():
        section = _LINES_OF_OTHER_SECTIONS.get(key.lower())
        if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", key):
            wrong.append(f"has the key {key!r}, which cannot be a key of slurm.conf: letters and digits only")
        elif key.lower() in _KEYS_OF_THE_PODS:
            wrong.append(f"has the key {key!r}, which is bound to how the pods are made and cannot be changed")
        elif section is not None:
            wrong.append(f"has the key {key!r}: use {section} for that")
        elif key.lower() in seen:
            wrong.append(f"has {seen[key.lower()]!r} and {key!r}, which Slurm takes for the same key")
        seen[key.lower()] = key
        if (problem := _problem_of(value)) is not None:
            wrong.append(problem.format(repr(key)))
    if wrong:
        raise ValueError("; ".join(wrong))
    return {key: _without_quotes(value) for key, value in settings.items()}


def _without_quotes(value: SettingValue) -> SettingValue:
    """Those that Slurm needs no more than we do are away, so that a list in them can be told from one value."""
    if isinstance(value, str) and re.fullmatch(r'"[^\s"]*[^\s"\\]"', value):
        return value[1:-1]
    return value


Settings = Annotated[dict[str, SettingValue], AfterValidator(_settings)]
"""Keys of slurm.conf and their values, as slurm.conf(5) has them."""


def folded(settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings by their keys in small letters: Slurm takes no notice of case."""
    return {key.lower(): value for key, value in settings.items()}


def merge(defaults: Mapping[str, str], settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """`defaults` with `settings` laid over them; to Slurm `defmempercpu` is the same key as `DefMemPerCPU`."""
    merged = dict(defaults)
    ours = {key.lower(): key for key in defaults}
    for key, value in settings.items():
        merged[ours.get(key.lower(), key)] = _as_text(value)
    return merged


def _as_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, tuple):
        return ",".join(_as_text(part) for part in value)
    return str(value)


def _unquoted_version(value: object) -> object:
    """YAML reads an unquoted 24.11 as a number."""
    return f"{value:.2f}" if isinstance(value, float) else value


class Slurm(Section):
    """Version and settings of Slurm."""

    version: Annotated[Literal["24.11", "26.05"], BeforeValidator(_unquoted_version)] = "24.11"
    """Release of Slurm. 24.11 comes from Debian trixie (with PMIx), 26.05 from Debian forky (without PMIx)."""
    cluster_name: str = Field(default="slurm", pattern=r"^[a-z0-9]([-a-z0-9_]{0,38}[a-z0-9])?$")
    """`ClusterName`. It must not change in the life of a cluster: job state and accounting are bound to it."""
    settings: Settings = Field(default_factory=dict)
    """Any key of slurm.conf; it wins over our default. A wrong one is rejected by Slurm itself when it is applied,
    and the old configuration goes on."""

    @property
    def has_pmix(self) -> bool:
        """Whether Slurm can start MPI programs by PMIx. Debian's build of 26.05 cannot (November 2026)."""
        return self.version == "24.11"
