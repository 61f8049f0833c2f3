"""The layout's rules: imports point one way, and no test needs another."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests import packages
from tests.packages import imported_packages

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "config": set(),
    "slurm": {"config"},
    "components": {"config", "slurm"},
    "local": {"slurm"},
    "cli": {"config", "slurm", "components", "local"},
}
"""Packages of ours that each of them may use besides itself. Nothing imports `__main__`."""

LIBRARIES = {
    "config": {"pydantic", "yaml", "cryptography"},
    "slurm": {"jinja2", "cryptography", "grafana_foundation_sdk"},
}
"""Third-party packages that the pure ones may use: no pulumi, above all. Grafana's are types and builders of its JSON,
as pure as what they are used for, and read by slurm/dashboards/grafana.py alone."""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_packages_below_it(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        foreign = imported_packages(path) & (MAY_IMPORT.keys() - MAY_IMPORT[package] - {package})
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_of_the_pods_programs_a_package_knows_only_what_all_share(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        foreign = {one for one in modules if one.startswith("images") and not one.startswith("images.common")}
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


@pytest.mark.parametrize("package", LIBRARIES)
def test_pure_packages_use_no_other_library_than_they_need(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        outside = imported_packages(path) - set(sys.stdlib_module_names) - MAY_IMPORT.keys() - LIBRARIES[package]
        assert not outside, f"{path.relative_to(ROOT)} imports {outside}"


def test_one_file_alone_knows_grafana_s_builders() -> None:
    files = [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))]
    users = [path.relative_to(ROOT).as_posix() for path in files if "grafana_foundation_sdk" in imported_packages(path)]
    assert users == ["slurm/dashboards/grafana.py"]


DEBIAN_PACKAGES = {"dashboard": {"jinja2"}, "rest": {"jinja2"}}
"""Folder below images/ -> what its programs use of the Python packages that the image has from Debian."""


def test_programs_in_the_images_need_nothing_but_python_itself_and_what_debian_brings() -> None:
    ours = (
        {path.name for path in (ROOT / "images").iterdir()}
        | {path.stem for path in (ROOT / "images").rglob("*.py")}
        | {"images"}
    )
    for path in sorted((ROOT / "images").rglob("*.py")):
        allowed = ours | DEBIAN_PACKAGES.get(path.relative_to(ROOT / "images").parts[0], set())
        outside = imported_packages(path) - set(sys.stdlib_module_names) - allowed
        assert not outside, f"{path.relative_to(ROOT)} imports {outside}"


def test_only_one_room_may_know_a_cloud_s_own_provider() -> None:
    users = {
        path.relative_to(ROOT).parts[:3]
        for path in ROOT.glob("components/**/*.py")
        if "pulumi_nebius" in imported_packages(path)
    }
    assert users <= {("components", "clouds", "nebius")}


def test_no_test_imports_another_test() -> None:
    """What several need lies beside them in a module of its own, under the name of what it is."""
    from_a_test = re.compile(r"^\s*from\s+([\w.]+\.)?test_\w*\s+import", re.MULTILINE)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found = from_a_test.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(ROOT)}: {found[0]}"


def test_what_users_name_makes_no_lines_in_what_the_kernel_or_a_tool_tells() -> None:
    """Who takes lines by `lines_in` reads such names, and cuts nothing there in Python's own way."""
    readers = 0
    for path in sorted((ROOT / "images").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "lines_in(" in text and path.name != "files.py":
            readers += 1
            assert ".splitlines(" not in text, path.relative_to(ROOT)
    assert readers >= 3, "mounts, processes and what restic says"


@pytest.mark.parametrize("name", ["kubernetes", "slurmctld"])
def test_a_stand_in_for_a_server_knows_nothing_of_what_it_tests(name: str) -> None:
    """One that took names or forms from our own tables would agree with any mistake in them."""
    tree = ast.parse((ROOT / f"tests/fakes/{name}.py").read_text(encoding="utf-8"))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in modules if module.partition(".")[0] in {*MAY_IMPORT, "images"}}
    assert ours <= {"images.common.command"}


def test_the_picture_of_the_rooms_is_current() -> None:
    assert packages.PICTURE.read_text(encoding="utf-8") == packages.draw(), "write it anew: python -m tests.packages"


def test_the_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:cli|components|config|images|local|slurm|slurm_templates|tests)/[\w./]*)`", text)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
