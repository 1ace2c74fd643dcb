"""Pictures of a report's first screen for the docs; `make pictures` takes them of results/report.html."""

import base64
import sys
import tempfile
from pathlib import Path

from browser import CHROMIUM, browser

SIZES = {"report": (1400, 900), "report-phone": (390, 844)}


def take(report: Path, folder: Path) -> None:
    """Write <name>.png and <name>-dark.png for the screen of a computer and of a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as tab:
        tab.open(report.resolve())
        tab.call("Emulation.setScrollbarsHidden", hidden=True)
        for name, (width, height) in SIZES.items():
            tab.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            for scheme, ending in (("light", ""), ("dark", "-dark")):
                tab.media(prefers_color_scheme=scheme)
                picture = tab.call("Page.captureScreenshot")["data"]
                (folder / f"{name}{ending}.png").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("screenshots.py: chromium is not installed (Debian: apt-get install chromium)")
    take(Path(sys.argv[1]), Path(sys.argv[2]))
