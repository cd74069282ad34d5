"""The expected figures of the solutions: small SVG charts of what was measured, without a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6b7280")
WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 48
Points = Sequence[tuple[float, float]]


def line_chart(title: str, x: str, y: str, series: Mapping[str, Points]) -> str:
    """Lines over a common x axis from 0."""
    right = max(p[0] for points in series.values() for p in points) or 1
    top = max(p[1] for points in series.values() for p in points) or 1
    body = []
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_x(px / right):.1f},{_y(py / top):.1f}" for px, py in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 12:
            body += [
                f'<circle cx="{_x(px / right):.1f}" cy="{_y(py / top):.1f}" r="3" fill="{colour}"/>'
                for px, py in points
            ]
        body.append(_text(WIDTH - RIGHT + 12, TOP + 14 + 18 * number, name, colour))
    ticks = [_text(_x(share), HEIGHT - BOTTOM + 16, _short(share * right), anchor="middle") for share in (0, 0.5, 1)]
    return _frame(title, x, y, top, [*ticks, *body])


def bar_chart(title: str, y: str, bars: Mapping[str, float]) -> str:
    """One bar a name, with its value above."""
    top = 1.12 * (max(bars.values()) or 1)
    step = (WIDTH - LEFT - 24) / len(bars)
    body = []
    for number, (name, value) in enumerate(bars.items()):
        at, high = LEFT + step * (number + 0.2), _y(value / top)
        body.append(
            f'<rect x="{at:.1f}" y="{high:.1f}" width="{step * 0.6:.1f}" height="{HEIGHT - BOTTOM - high:.1f}" '
            f'fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        body.append(_text(at + step * 0.3, high - 6, _short(value), anchor="middle"))
        body.append(_text(at + step * 0.3, HEIGHT - BOTTOM + 16, name, anchor="middle"))
    return _frame(title, "", y, top, body)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, colour: str = "#334155", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def _frame(title: str, x: str, y: str, top: float, body: Sequence[str]) -> str:
    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600" fill="#0f172a">{escape(title)}</text>',
        f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - 24}" fill="none" stroke="#64748b"/>',
        *(_text(LEFT - 6, _y(share) + 4, _short(share * top), anchor="end") for share in (0, 0.5, 1)),
        _text(LEFT, TOP - 6, y),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x, anchor="middle"),
        *body,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
