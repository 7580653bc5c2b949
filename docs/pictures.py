"""Make the README's pictures of a study on a tracking server: report, page in MLflow, what the sets look like.

    MLFLOW_TRACKING_URI=sqlite:////path/mlflow.db python docs/pictures.py main

Needs Chromium, which draws the pages as people see them.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from biasbed import record
from biasbed.tracking.pages import Pages
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import resolve_uri

PORT = 5019  # of MLflow's pages while they are drawn
BROWSER = "chromium"
FOLDER = Path(__file__).parent / "pictures"
SECONDS = 12  # that a page has to fetch and to draw what it shows
LONGEST = 120  # seconds of a visit


class Browser:
    """Chromium without a window, with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        self._words = [BROWSER, *options, "--hide-scrollbars", f"--user-data-dir={profile}"]
        self._words.append(f"--virtual-time-budget={1000 * SECONDS}")

    def picture(self, address: str, path: Path, width: int, height: int, *options: str) -> None:
        """Return a picture of a window of so many pixels, as PNG."""
        self._run(address, f"--window-size={width},{height}", f"--screenshot={path}", *options)

    def text(self, address: str, width: int = 1400, height: int = 1600) -> str:
        """The page's own HTML after its scripts have run: what is not drawn yet at this size may lack."""
        return self._run(address, f"--window-size={width},{height}", "--dump-dom")

    def paper(self, address: str, path: Path) -> None:
        """The page as it is printed, as PDF."""
        self._run(address, f"--print-to-pdf={path}", "--no-pdf-header-footer")

    def _run(self, address: str, *options: str) -> str:
        """Visit a page and return the browser's output; visit it twice if the first visit does not end.

        The virtual clock sometimes stops for good on a busy machine, when the page is fetched for the first time. The
        second visit finds it in the profile's cache.
        """
        words = [*self._words, *options, address]
        visit = functools.partial(subprocess.run, words, capture_output=True, text=True, timeout=LONGEST, check=True)
        try:
            return visit().stdout
        except subprocess.TimeoutExpired:
            return visit().stdout


@contextlib.contextmanager
def served(uri: str) -> Iterator[Pages]:
    """MLflow's pages of a server, started for as long as the block takes where it is a local database."""
    if uri.startswith(("http://", "https://")):
        yield Pages(uri.rstrip("/"))
        return
    port = PORT
    words = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{base}/health", timeout=2)
                break
            time.sleep(0.5)
        yield Pages(base)
    finally:
        server.terminate()
        server.wait()


def pictures(uri: str, study: str, report: Path, folder: Path) -> None:
    """Draw the report, MLflow's page of the study and images of its sets into a folder."""
    (study_run,) = find_runs(uri, kind="study", study=study)[:1]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, served(uri) as pages:
        browser = Browser(Path(profile))
        study_page = pages.run(study_run.info.experiment_id, study_run.info.run_id)
        browser.picture(study_page, folder / "study.png", 1800, 900)
        cut_assistant(folder / "study.png")
        browser.picture(f"file://{quote(str(report))}", folder / "report.png", 1400, 1120)
        sets = looks(report.parent, Path(profile))
        browser.picture(f"file://{quote(str(sets))}", folder / "sets.png", 800, 260)


def cut_assistant(path: Path) -> None:
    """Leave out the quarter at the right, where MLflow's assistant opens itself, which only a click closes."""
    from PIL import Image

    with Image.open(path) as whole:
        part = whole.crop((0, 0, round(0.745 * whole.width), whole.height))
    part.save(path, optimize=True)


def looks(analysed: Path, folder: Path) -> Path:
    """A page with the first images of each set, as the report has them."""
    rows = [
        f'<figure><img src="{path.as_uri()}"><figcaption>{path.stem}</figcaption></figure>'
        for path in sorted((analysed / "looks").glob("*.png"))
    ]
    style = (
        "body { margin: 12px; display: grid; align-content: start; grid-template-columns: 1fr 1fr; gap: 6px 18px; "
        "font: 15px sans-serif } "
        "figure { margin: 0 } img { width: 100%; image-rendering: pixelated } figcaption { margin-bottom: 6px }"
    )
    page = folder / "sets.html"
    page.write_text(f"<meta charset='utf-8'><style>{style}</style>{''.join(rows)}", encoding="utf-8")
    return page


def main(study: str) -> None:
    """Analyse the study once more, and draw."""
    from biasbed.analysis import analyze
    from biasbed.analysis.options import AnalyzeOptions

    if shutil.which(BROWSER) is None:
        sys.exit(f"needs {BROWSER}: apt-get install chromium")
    uri = resolve_uri()
    if not find_runs(uri, kind="study", study=study):
        sys.exit(f"there is no study {study} on {uri}: mlflow run . --env-manager uv makes `{record.slug('main')}`")
    with tempfile.TemporaryDirectory() as folder:
        done = analyze(AnalyzeOptions(study=study, output_dir=folder))
        pictures(uri, study, done.output_dir / "report.html", FOLDER)
    print(*sorted(FOLDER.glob("*.png")), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["main"])
