"""Small charts as SVG text: lines, bars and heat maps.

Colours come from the page's CSS variables, so that one drawing serves light, dark and print. Every chart
carries its own title and description for screen readers, and the same data give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

WIDTH = 480
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 18, 50
MOST_POINTS = 400


def number(value: float, digits: int = 4) -> str:
    """A figure as people write it: a few significant digits and no trailing zeros."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0 or math.isnan(value):
        return "0" if value == 0 else "not a number"
    if not 1e-4 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trim(mantissa)}e{int(exponent)}"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return _trim(f"{value:.{places}f}")


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values that span [low, high]: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def line_chart(points: Sequence[Point], *, title: str, x_label: str, y_label: str, height: int = 280) -> str:
    """A line through `points`, its last value marked.

    The vertical axis is logarithmic where values span a factor of 100.
    """
    points = thin([point for point in points if all(map(math.isfinite, point))])
    if not points:
        raise ValueError("a line chart needs at least one finite point")
    x_ticks = ticks(min(x for x, _ in points), max(x for x, _ in points))
    lowest, highest = min(y for _, y in points), max(y for _, y in points)
    logarithmic = lowest > 0 and highest / lowest >= 100
    y_ticks = _decades(lowest, highest) if logarithmic else ticks(lowest, highest, 4)
    across = _Scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    down = _Scale(y_ticks[0], y_ticks[-1], height - BOTTOM, TOP, logarithmic=logarithmic)
    path = "M" + "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in points)
    x, y = points[-1]
    parts = [_grid(y_ticks, down), _feet(x_ticks, across, height), _axis_names(x_label, y_label, height)]
    parts.append(f'<path class="chart-line" d="{path}"/>')
    parts.append(f'<circle class="chart-dot" cx="{across(x):.1f}" cy="{down(y):.1f}" r="4"/>')
    # On the side of the last point from which the line does not come.
    falling = len(points) > 1 and points[-2][1] > y
    below = falling and down(y) + 20 < height - BOTTOM
    anchor = "end" if across(x) > WIDTH - 90 else "start"
    parts.append(_text(across(x), down(y) + (20 if below else -10), number(y), anchor=anchor, kind="value"))
    summary = (
        f"{y_label} against {x_label}, from {number(points[0][1])} at {number(points[0][0])} to "
        f"{number(y)} at {number(x)}."
    )
    return _frame(WIDTH, height, title, summary, parts)


def thin(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS of `points`, evenly taken; the first and the last stay."""
    if len(points) <= MOST_POINTS:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (MOST_POINTS - 1))] for index in range(MOST_POINTS)]


def bars(
    values: Sequence[tuple[str, float]],
    *,
    title: str,
    most: int = 20,
    intervals: Sequence[Point] | None = None,
) -> str:
    """Horizontal bars in the order given, at most `most` of them, each with its label and value, and where
    there are intervals a line from end to end.
    """
    shown = list(values)[:most]
    ends = list(intervals or [])[:most]
    reached = [abs(value) for _, value in shown] + [abs(end) for pair in ends for end in pair]
    largest = max(reached, default=0) or 1
    row, left, right = 26, 168, 62
    parts = []
    for index, (label, value) in enumerate(shown):
        top = 8 + index * row
        length = (WIDTH - left - right) * abs(value) / largest
        kind = "chart-bar negative" if value < 0 else "chart-bar"
        parts.append(f"<g><title>{escape(label)}: {number(value)}</title>")
        parts.append(_text(left - 8, top + 15, _shorten(label, 20), anchor="end", kind="name"))
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{top + 2}" '
            f'width="{max(length, 1):.1f}" height="{row - 8}" rx="3"/>'
        )
        far = length
        if ends:
            # On the side of the bar's own sign; what lies beyond zero is cut off.
            sides = [max(0.0, math.copysign(1.0, value) * end) for end in ends[index]]
            low, high = sorted((WIDTH - left - right) * side / largest for side in sides)
            far = max(length, high)
            parts.append(
                f'<line class="chart-interval" x1="{left + low:.1f}" x2="{left + high:.1f}" '
                f'y1="{top + 11}" y2="{top + 11}"/>'
            )
        parts.append(_text(left + far + 6, top + 15, number(value, 3), anchor="start", kind="value") + "</g>")
    summary = "; ".join(f"{label} {number(value, 3)}" for label, value in shown[:5])
    return _frame(WIDTH, 16 + row * max(len(shown), 1), title, f"Largest first: {summary}.", parts)


def beside(
    values: Sequence[tuple[str, float, float]], *, title: str, names: tuple[str, str], most: int = 20
) -> str:
    """Two figures of each label side by side, each drawn on a scale of its own: bars that grow to the left
    and bars that grow to the right of the labels between them.
    """
    shown = list(values)[:most]
    row, middle, half, room = 26, WIDTH / 2, 84.0, 46.0
    span = WIDTH / 2 - half - room
    pairs = [(one, other) for _, one, other in shown]
    largest = [max((abs(pair[side]) for pair in pairs), default=0) or 1 for side in (0, 1)]
    parts = [
        _text(middle - half, 14, names[0], anchor="end", kind="axis"),
        _text(middle + half, 14, names[1], anchor="start", kind="axis"),
    ]
    for index, (label, *pair) in enumerate(shown):
        top = 24 + index * row
        parts.append(f"<g><title>{escape(label)}: {number(pair[0])}, {number(pair[1])}</title>")
        parts.append(_text(middle, top + 15, _shorten(label, 20), anchor="middle", kind="name"))
        for side, value in enumerate(pair):
            length, sign = max(span * abs(value) / largest[side], 1), -1 if side == 0 else 1
            start = middle + sign * half
            parts.append(
                f'<rect class="chart-bar{" noise" if side else ""}" x="{min(start, start + sign * length):.1f}" '
                f'y="{top + 2}" width="{length:.1f}" height="{row - 8}" rx="3"/>'
            )
            anchor = "start" if side else "end"
            parts.append(
                _text(start + sign * (length + 6), top + 15, number(value, 3), anchor=anchor, kind="value")
            )
        parts.append("</g>")
    summary = "; ".join(f"{label} {number(one, 3)} and {number(other, 3)}" for label, one, other in shown[:5])
    return _frame(
        WIDTH, 32 + row * max(len(shown), 1), title, f"{names[0]} and {names[1]}: {summary}.", parts
    )


def heat_map(grid: Sequence[Sequence[float]], *, title: str, from_least: bool = False) -> str:
    """A picture of a matrix: the stronger the colour, the larger the value; negative values have a colour of
    their own. `from_least`: the colour begins at the least value and not at 0, for values that differ little.
    """
    rows, columns = len(grid), max((len(row) for row in grid), default=0)
    flat = [value for row in grid for value in row]
    least = min(flat, default=0) if from_least else 0.0
    largest = max((abs(value - least) for value in flat), default=0) or 1
    side = 320 / max(rows, columns, 1)
    width, height, left = side * columns, side * rows, (WIDTH - side * columns) / 2
    parts = [f'<rect class="chart-field" x="{left:.1f}" y="8" width="{width:.1f}" height="{height:.1f}"/>']
    for down, row in enumerate(grid):
        for across, value in enumerate(row):
            parts.append(_cell(left + across * side, 8 + down * side, side, (value - least) / largest))
    signs = (min(flat, default=0) < least, max(flat, default=0) > least)
    parts.append(_legend(height + 22, signs, largest, least))
    summary = (
        f"{rows} by {columns} values from {number(min(flat, default=0))} to {number(max(flat, default=0))}."
    )
    return _frame(WIDTH, round(height) + 60, title, summary, parts)


def _cell(x: float, y: float, side: float, strength: float) -> str:
    if abs(strength) < 0.01:
        return ""
    kind, size = "negative" if strength < 0 else "positive", f"{side:.2f}"
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{size}" height="{size}" '
        f'opacity="{abs(strength):.2f}"/>'
    )


def _legend(top: float, signs: tuple[bool, bool], largest: float, least: float) -> str:
    """`signs`: whether there are values below and above where the colour begins."""
    start, end, steps = -float(signs[0]), float(signs[1]), 24
    size, left = 160 / steps, (WIDTH - 160) / 2
    parts = [
        _cell(left + index * size, top, size, start + (end - start) * (index + 0.5) / steps)
        for index in range(steps)
    ]
    parts.append(_text(left - 8, top + 8, number(least + start * largest, 3), anchor="end", kind="value"))
    parts.append(_text(left + 168, top + 8, number(least + end * largest, 3), anchor="start", kind="value"))
    return "".join(parts)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


class _Scale:
    """Maps a value of an axis to a position in the drawing."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, logarithmic: bool = False
    ) -> None:
        self.bend = math.log10 if logarithmic else float
        self.low, self.high, self.start, self.end = self.bend(low), self.bend(high), start, end

    def __call__(self, value: float) -> float:
        share = (self.bend(value) - self.low) / ((self.high - self.low) or 1)
        return self.start + share * (self.end - self.start)


def _grid(values: Sequence[float], down: _Scale) -> str:
    lines = []
    for value in values:
        y = down(value)
        lines.append(f'<line class="chart-grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_text(LEFT - 8, y + 4, number(value), anchor="end", kind="tick"))
    return "".join(lines)


def _feet(values: Sequence[float], across: _Scale, height: int) -> str:
    return "".join(
        _text(across(value), height - BOTTOM + 19, number(value), anchor="middle", kind="tick")
        for value in values
    )


def _axis_names(x_label: str, y_label: str, height: int) -> str:
    middle = (TOP + height - BOTTOM) / 2
    turned = (
        f'<text class="chart-axis" text-anchor="middle" transform="translate(14 {middle:.0f}) '
        f'rotate(-90)">{escape(y_label)}</text>'
    )
    return _text((LEFT + WIDTH - RIGHT) / 2, height - 9, x_label, anchor="middle", kind="axis") + turned


def _text(x: float, y: float, words: str, *, anchor: str, kind: str) -> str:
    return f'<text class="chart-{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _shorten(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _frame(width: int, height: int, title: str, summary: str, parts: Sequence[str]) -> str:
    label = escape(f"{title}. {summary}")
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )
