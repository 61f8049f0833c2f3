"""The dashboard in a real browser: what it draws, and that nothing is wider than a narrow window."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from PIL import Image, ImageChops, ImageStat

from images.dashboard.app import COOKIE, App
from images.dashboard.plots import Prometheus, plot
from local.report import PlainReport
from local.tools import Requirement, Tools, ensure_tools
from tests.unit.images.dashboard_page import NOW, Fixed, job, made_token, node, pending

WIDTHS = (360, 800, 1400)
PATHS = ("/dashboard/", "/dashboard/jobs?user=", "/dashboard/login")

PROGRAM = "usr/lib/chromium/chromium"
"""Debian's `chromium` itself is a script that expects to be installed."""

FONT = "usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"

MEASURE = """<!DOCTYPE html><body><script>
const found = [];
for (const path of PATHS) for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 800; frame.style.border = 0; frame.src = path;
  frame.addEventListener("load", () => found.push([path, width, frame.contentDocument.documentElement.scrollWidth,
    getComputedStyle(frame.contentDocument.body).marginTop]));
  document.body.append(frame);
}
addEventListener("load", () => { document.body.textContent = JSON.stringify(found); });
</script></body>"""


class Figures(Prometheus):
    """Plots without a Prometheus."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")

    def plots(self) -> list[Any]:
        return [plot("CPUs", {"in use": [float(at % 40) for at in range(288)], "there": [64.0] * 288})]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a cluster in which every state and long words are, for somebody who has logged in."""
    directory = tmp_path_factory.mktemp("dashboard")
    (directory / "slurm.conf").write_text("ClusterName=hpc\n")
    long = "a-reason-without-a-space-" * 8
    states = ("idle", "mixed", "allocated", "drained", "down*", "reserved")
    nodes = [node(f"gpu-h100-{number}", StateLong=states[number % 6], Reason=long, User="root") for number in range(14)]
    jobs = [job(name=long, comment=long), pending(name="x" * 200, id="7_[1-4,9-19:2]")] * 20
    app = App(Fixed(directory, nodes, jobs), Figures(), lambda _: None, lambda: NOW)

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] == "/measure":
            start("200 OK", [("Content-Type", "text/html")])
            asked = parse_qs(environ["QUERY_STRING"])
            return [MEASURE.replace("PATHS", asked["paths"][0]).replace("WIDTHS", asked["widths"][0]).encode()]
        environ["HTTP_COOKIE"] = f"{COOKIE}={made_token()}"

        if environ.get("HTTP_SEC_FETCH_DEST") != "iframe":
            return app(environ, start)

        def start_without_policy(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
            # It forbids frames, in which widths are measured.
            start(status, [(name, value) for name, value in headers if not name.startswith("Content-Security")])

        return app(environ, start_without_policy)

    with make_server("127.0.0.1", 0, serve, handler_class=Quiet) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Tools:
    """The machine's browser, or Debian's, unpacked beside the programs of the local cluster."""
    wanted = [Requirement(packages=("chromium",), files=(PROGRAM,))]
    return ensure_tools(PlainReport(), [*wanted, Requirement(packages=("fonts-dejavu-core",), files=(FONT,))])


def browse(tools: Tools, profile: Path, *options: str) -> str:
    """What the browser prints, without a window and with a profile of its own."""
    common = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
              "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"]  # fmt: skip
    command = [str(tools.file(PROGRAM)), *common, *options]
    env = tools.env()
    if tools.tree:
        private = map(str, tools.tree.glob("usr/lib/*/pulseaudio"))
        env["LD_LIBRARY_PATH"] = ":".join([*private, env["LD_LIBRARY_PATH"]])
        env["XDG_DATA_HOME"] = str(tools.tree / "usr/share")  # below it are fonts, if they are not this machine's own
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_page_is_wider_than_its_window(chromium: Tools, address: str, tmp_path: Path) -> None:
    asked = f"{address}/measure?paths={json.dumps(PATHS)}&widths={json.dumps(WIDTHS)}".replace('"', "%22")
    printed = browse(chromium, tmp_path, "--dump-dom", asked)
    (text,) = re.findall(r"<body>(\[.*\])</body>", printed)
    found = {(path, width): (seen, margin) for path, width, seen, margin in json.loads(text)}
    assert found.keys() == {(path, width) for path in PATHS for width in WIDTHS}
    assert {key: seen for key, (seen, _) in found.items() if seen > key[1]} == {}
    assert {margin for _, margin in found.values()} == {"0px"}, "its style sheet is there"


@pytest.mark.parametrize("path", PATHS)
def test_it_is_drawn_though_its_policy_allows_no_script(
    chromium: Tools, address: str, tmp_path: Path, path: str
) -> None:
    picture = tmp_path / "page.png"
    browse(chromium, tmp_path / "profile", "--window-size=1200,2600", f"--screenshot={picture}", f"{address}{path}")
    with Image.open(picture) as opened:
        pixels = opened.convert("RGB")
    assert pixels.size == (1200, 2600)
    ground = Image.new("RGB", pixels.size, pixels.getpixel((0, 0)))
    drawn = ImageChops.difference(pixels, ground).convert("L").point(lambda by: 255 if by > 50 else 0)
    assert ImageStat.Stat(drawn).mean[0] / 255 > 0.002, "text, at least"
    assert drawn.crop((1192, 100, 1200, 2600)).getbbox() is None, "below the header nothing runs into the edge"
