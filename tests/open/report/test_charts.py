"""Charts stay inside their frames, whatever the figures."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from stages.open.report import charts
from tests.support.report_inputs import CURVE


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.2, 0.7), (-3, 17), (0, 199), (1e-9, 3e-9), (5, 5), (0, 0)]
)
def test_ticks_are_few_round_and_span_the_data(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    assert 2 <= len(found) <= 8


@pytest.mark.parametrize(
    "points",
    [[(0, 1.0)], [(0, 1), (1, 1)], [(0, 1e-6), (1, 1e3)], [(0, -1), (1, math.nan), (2, 3)], CURVE * 20],
)
def test_lines_stay_inside_their_frame(points: list[tuple[float, float]]) -> None:
    drawn = charts.line_chart(points, title="t", x_label="x", y_label="y")
    path = re.search(r'chart-line" d="M([^"]+)"', drawn)
    assert path is not None
    pairs = [tuple(map(float, pair.split())) for pair in path[1].split("L")]
    assert len(pairs) <= charts.MOST_POINTS
    assert all(0 <= x <= charts.WIDTH and 0 <= y <= 280 for x, y in pairs)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e-5, "1e-5"),
        (0.99999999, "1"),
        (1234.5, "1234"),
        (math.inf, "∞"),
        (0, "0"),
        (-0.25, "-0.25"),
    ],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert charts.number(value) == text


def test_bars_are_as_long_as_their_values_say() -> None:
    drawn = charts.bars([("a", 4.0), ("<b>", -2.0), ("c" * 40, 0.0)], title="t")
    lengths = [float(bar.get("width", "")) for bar in ElementTree.fromstring(drawn).iter("rect")]
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=0.1)
    assert lengths[2] == 1
    assert 'class="chart-bar negative"' in drawn
    assert "…" in drawn


def test_values_that_differ_little_are_told_apart_from_their_least() -> None:
    rows = [[0.64, 0.66], [0.65, 0.68]]
    flat, told = (charts.heat_map(rows, title="t", from_least=least) for least in (False, True))
    assert 'opacity="0.94"' in flat and 'opacity="0.25"' in told and 'opacity="0.50"' in told
    assert ">0.64<" in told and ">0.68<" in told and ">0<" in flat


def test_a_heat_map_has_a_cell_for_every_value_that_shows() -> None:
    drawn = ElementTree.fromstring(charts.heat_map([[0.0, 1.0], [-0.5, 0.25]], title="t"))
    field = [
        rect
        for rect in drawn.iter("rect")
        if rect.get("class") in ("positive", "negative") and float(rect.get("width", "")) > 100
    ]
    assert [(rect.get("class"), rect.get("opacity")) for rect in field] == [
        ("positive", "1.00"),
        ("negative", "0.50"),
        ("positive", "0.25"),
    ]


def test_empty_charts_are_still_drawn() -> None:
    for drawn in (
        charts.bars([], title="t"),
        charts.heat_map([], title="t"),
        charts.heat_map([[0.0]], title="t"),
    ):
        assert ElementTree.fromstring(drawn).get("role") == "img"


def test_two_figures_stand_beside_each_other_each_on_its_own_scale() -> None:
    drawn = charts.beside([("a", 4.0, 1e-3), ("b", 1.0, 2e-3)], title="t", names=("one", "other"))
    lengths = [
        float(found) for found in re.findall(r'<rect class="chart-bar[^"]*".*? width="([0-9.]+)"', drawn)
    ]
    assert lengths[0] == pytest.approx(4 * lengths[2], abs=0.2)
    assert lengths[3] == pytest.approx(2 * lengths[1], abs=0.2)
    assert lengths[0] == lengths[3]
