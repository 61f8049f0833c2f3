"""The picture of the house, made from the code: `python -m tests.packages` writes docs/images/packages.svg.

Each box is a folder with the first sentence of its own docstring, and with the packages from which it imports.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "packages.svg"

PACKAGES = ("cli", "components", "slurm", "config", "local", "images")
"""From the top to the bottom: a package uses packages below it, and `local` what images are called."""

_WIDTH, _ACROSS, _LINE, _PAD = 1100, 3, 16, 10
_TILE = (_WIDTH - 2 * _PAD) // _ACROSS
_LETTERS = 54
"""Letters that fit into a line of a tile."""


@cache
def imported_packages(path: Path) -> frozenset[str]:
    """The first names of all modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and node.level == 0}
    return frozenset(name.split(".")[0] for name in names)


def used_by(package: str) -> list[str]:
    """The other packages from which a package imports."""
    found = set[str]().union(*(imported_packages(path) for path in (ROOT / package).rglob("*.py")))
    return [other for other in PACKAGES if other in found and other != package]


def _said(folder: Path) -> str:
    """The first sentence of a folder's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")


def _tile(folder: Path, x: int, y: int) -> tuple[list[str], int]:
    """A folder inside of a package, and its height."""
    lines = wrap(_said(folder), _LETTERS)
    height = (len(lines) + 1) * _LINE + _PAD
    shapes = [_text(x + 8, y + _LINE, "part", f"{folder.name}/")]
    shapes += [_text(x + 8, y + (number + 2) * _LINE, "said", line) for number, line in enumerate(lines)]
    return shapes, height


def _text(x: int, y: int, kind: str, text: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _package(package: str, y: int) -> tuple[list[str], int]:
    """A package with its folders, and where it ends."""
    uses = ", ".join(used_by(package)) or "none of the others"
    shapes = [
        _text(_PAD + 12, y + 22, "name", f"{package}/"),
        _text(_PAD + 120, y + 22, "said", _said(ROOT / package)),
        f'<text x="{_WIDTH - _PAD - 12}" y="{y + 22}" class="uses" text-anchor="end">uses {escape(uses)}</text>',
    ]
    at, folders = y + 32, sorted(path.parent for path in (ROOT / package).glob("*/__init__.py"))
    for first in range(0, len(folders), _ACROSS):
        row = folders[first : first + _ACROSS]
        tiles = [_tile(folder, _PAD + 4 + number * _TILE, at) for number, folder in enumerate(row)]
        tallest = max(height for _, height in tiles)
        for number, (drawn, _) in enumerate(tiles):
            x = _PAD + 4 + number * _TILE
            shapes.append(f'<rect x="{x}" y="{at}" width="{_TILE - 8}" height="{tallest - 4}" rx="4" class="tile"/>')
            shapes += drawn
        at += tallest + 2
    box = f'<rect x="{_PAD}" y="{y}" width="{_WIDTH - 2 * _PAD}" height="{at - y + 4}" rx="6" class="package"/>'
    return [box, *shapes], at + 4


def draw() -> str:
    """The whole picture as SVG."""
    shapes: list[str] = []
    y = _PAD
    for package in PACKAGES:
        drawn, end = _package(package, y)
        shapes += drawn
        y = end + 12
    return _FRAME.format(width=_WIDTH, height=y, shapes="\n".join(shapes))


_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif"
 font-size="12" role="img" aria-label="The folders of the repository, what each is for, and which imports from which">
<style>
.package {{ fill: #f7f9fc; stroke: #4a5568 }}
.tile {{ fill: #fff; stroke: #cbd5e0 }}
.name {{ font-weight: bold; font-size: 15px }}
.part {{ font-weight: bold }}
.said {{ fill: #4a5568 }}
.uses {{ fill: #2b6cb0 }}
</style>
<rect width="{width}" height="{height}" style="fill: #fff"/>
{shapes}
</svg>
"""

if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
