"""What is in an image, as a bill of materials: Debian's packages by dpkg's own list, and our programs by their content.

CycloneDX 1.6 as JSON, a file per role beside `images.tar`: scanners of vulnerabilities read it without the image. The
same layers give the same text.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from pathlib import Path
from typing import Any

PARTS = ("var/lib/dpkg/status", "usr/lib/slurmstack")
"""What of an image's file system is read."""


def write(root: Path, target: Path, *, name: str, suite: str) -> None:
    """Write the bill of an image from (these parts of) its file system; `name`: the image's full name."""
    status, ours = (root / part for part in PARTS)
    packages = [_package(entry, suite) for entry in _installed(status.read_text(encoding="utf-8", errors="replace"))]
    programs = sorted(str(path.relative_to(root)) for path in ours.rglob("*") if path.is_file())
    image, _, tag = name.rpartition(":")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": image, "version": tag}},
        "components": [
            {"type": "operating-system", "bom-ref": f"debian-{suite}", "name": "debian", "version": suite},
            *packages,
            *(
                {
                    "type": "file",
                    "bom-ref": f"/{path}",
                    "name": f"/{path}",
                    "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((root / path).read_bytes()).hexdigest()}],
                }
                for path in programs
            ),
        ],
    }
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _installed(status: str) -> list[dict[str, str]]:
    """The fields of each installed package, by name."""
    entries = [dict(re.findall(r"^(\S+): (.*)$", block, re.MULTILINE)) for block in status.split("\n\n")]
    return sorted(
        (entry for entry in entries if entry.get("Status", "").endswith(" installed")),
        key=lambda entry: (entry["Package"], entry["Architecture"]),
    )


def _package(entry: dict[str, str], suite: str) -> dict[str, Any]:
    version, architecture = entry["Version"], entry["Architecture"]
    quoted = urllib.parse.quote(version, safe="")
    url = f"pkg:deb/debian/{entry['Package']}@{quoted}?arch={architecture}&distro={suite}"
    # Debian's security tracker goes by source packages; without this field the source has the package's own name.
    source = entry.get("Source", entry["Package"]).partition(" ")[0]
    return {
        "type": "library",
        "bom-ref": url,
        "name": entry["Package"],
        "version": version,
        "purl": url,
        "properties": [{"name": "debian:source", "value": source}],
    }
