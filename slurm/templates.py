"""Where Slurm's files are rendered: `slurm_templates/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

_TEMPLATES = Path(__file__).resolve().parent.parent / "slurm_templates"


@cache
def environment() -> jinja2.Environment:
    """Plain text for Slurm's own parser; a name that a template does not know is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  plain text for Slurm's own parser, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
    )
