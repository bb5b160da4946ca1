"""The report page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import MISSING, Browser
from tests.support.report_inputs import Inputs, fill

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return fill(tmp_path)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING:
        pytest.skip(f"{' and '.join(MISSING)} not installed (Debian packages chromium, chromium-driver)")
    running = Browser(tmp_path_factory.mktemp("chromium"))
    yield running
    running.close()


CONTRAST = (Path(__file__).parents[2] / "support/contrast.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_browser_shows_the_page_without_complaint_or_request(
    browser: Browser, inputs: Inputs, tmp_path: Path, scheme: str
) -> None:
    inputs.page(relevance={"mode": "statistics"}, train={"method": "sgd"})
    page = tmp_path / "data/report/report.html"
    browser.look(scheme=scheme)
    browser.requests(), browser.logs("browser")
    browser.open(page)
    browser.photograph(tmp_path / f"{scheme}.png")
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]
    assert browser.logs("browser") == []
    assert browser.run(CONTRAST) == []
    assert (tmp_path / f"{scheme}.png").stat().st_size > 20_000


def test_browser_finds_light_and_dark_different_and_print_light(
    browser: Browser, inputs: Inputs, tmp_path: Path
) -> None:
    inputs.page()
    shades = {}
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
        browser.look(scheme=scheme, media=media)
        browser.open(tmp_path / "data/report/report.html")
        shades[scheme, media] = browser.run(
            "return getComputedStyle(document.body).backgroundColor"
            " + getComputedStyle(document.querySelector('.box')).fill"
        )
    assert shades["light", "screen"] != shades["dark", "screen"]
    assert shades["dark", "print"] == "rgb(255, 255, 255)rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [320, 390, 820])
def test_browser_needs_no_sideways_scrolling_on_a_phone(
    browser: Browser, inputs: Inputs, tmp_path: Path, width: int
) -> None:
    inputs.page()
    browser.look(width=width)
    browser.open(tmp_path / "data/report/report.html")
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_browser_shows_the_whole_comparison_at_a_thousand_pixels(
    browser: Browser, inputs: Inputs, tmp_path: Path
) -> None:
    inputs.page()
    browser.look(width=1000)
    browser.open(tmp_path / "data/report/report.html")
    seen = (
        "const box = document.querySelector('#comparison .scroll'); return [box.scrollWidth, box.clientWidth]"
    )
    needed, shown = browser.run(seen)
    assert 0 < needed <= shown


PLANTED = """<script>document.title='ran'</script><style>main{display:none}</style>
    <p style='color:red' id=planted>x</p>"""
POLICY = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')
SEEN = """return [document.title === 'ran',
    getComputedStyle(document.querySelector('main')).display === 'none',
    getComputedStyle(document.getElementById('planted')).color === 'rgb(255, 0, 0)']"""


@pytest.mark.parametrize("policy", ["as made", "control: without"])
def test_browser_runs_no_script_and_takes_no_style_that_the_page_was_not_made_with(
    browser: Browser, inputs: Inputs, tmp_path: Path, policy: str
) -> None:
    page = inputs.page().replace("</body>", PLANTED + "</body>")
    assert len(POLICY.findall(page)) == 1
    held = policy == "as made"
    (tmp_path / "planted.html").write_text(page if held else POLICY.sub("", page))
    browser.open(tmp_path / "planted.html")
    assert browser.run(SEEN) == ([False] * 3 if held else [True] * 3)
