"""A topology as an SVG picture: spines above, leaves below them, hosts at the foot.

Link colour tells the rate, a dashed line is down, a dotted one loses packets. No tool is needed to draw or to view it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from xml.sax.saxutils import escape

from emulator.topology.network import Link, Network, Node
from emulator.topology.units import format_duration, format_fraction, format_rate

HOST_W, HOST_H, HOST_GAP = 50, 28, 5
SWITCH_W, SWITCH_H = 88, 36
MARGIN, LEAF_GAP = 36, 28
TIER_H = 150
#: Colours that differ in lightness too, so that they stay apart in grey and for colour-blind eyes (Okabe and Ito 2008).
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
STYLE = """
  text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24; }
  .title { font-size: 18px; font-weight: 600; } .note { fill: #57606a; } .mid { text-anchor: middle; } .small { font-size: 11.5px; }
  .host { fill: #f3f5f7; stroke: #57606a; } .leaf { fill: #ddf0e8; stroke: #1f7a57; } .spine { fill: #e3ecf8; stroke: #1d5fa8; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16191d; } text { fill: #e6e9ec; } .note { fill: #a3abb3; }
    .host { fill: #262b31; stroke: #a3abb3; } .leaf { fill: #1d3b30; stroke: #5cc79b; } .spine { fill: #1d2d44; stroke: #78aee8; }
  }
"""


def draw_svg(network: Network) -> str:
    """The picture as SVG text; a tooltip on each link and node gives its values."""
    centres, width = _layout(network)
    colours = _colours(network)
    depth = 3 if network.spines else 2
    top = 84
    legend_y = top + (depth - 1) * TIER_H + 58
    legend, width = _legend(network, colours, legend_y, width)
    height = legend_y + 26
    tiers = {"spine": 0, "leaf": depth - 2, "host": depth - 1}
    places: dict[str, tuple[float, float]] = {
        name: (x, top + tiers[network.node(name).kind] * TIER_H) for name, x in centres.items()
    }
    shift = (width - _extent(centres)) / 2
    places = {name: (x + shift, y) for name, (x, y) in places.items()}
    body = [_link(link, places, colours) for link in sorted(network.links, key=_draw_order)]
    body += [_node(node, *places[node.name]) for node in network.nodes]
    counts = f"{len(network.hosts)} hosts, {len(network.leaves)} leaves, {len(network.spines)} spines"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(network.name)}: {counts}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        f'<text class="title" x="{MARGIN}" y="32">{escape(network.name)}</text>',
    ]
    return "\n".join([*head, *body, *legend, "</svg>", ""])


def _colours(network: Network) -> dict[int, str]:
    """A colour for each rate, the commonest first; the legend goes from fast to slow."""
    seen = Counter(port.rate_bps for port in network.ports)
    ranked = sorted(seen, key=lambda rate: (-seen[rate], -rate))
    colours = {rate: PALETTE[number % len(PALETTE)] for number, rate in enumerate(ranked)}
    return {rate: colours[rate] for rate in sorted(colours, reverse=True)}


def _layout(network: Network) -> tuple[dict[str, float], float]:
    """The middle of each node from left to right, and the width of the picture."""
    centres: dict[str, float] = {}
    x = 0.0
    for leaf in network.leaves:
        hosts = [host for host in network.hosts if host.leaf == leaf.index]
        columns = max(1, len(hosts))
        block = max(columns * (HOST_W + HOST_GAP) - HOST_GAP, SWITCH_W)
        start = x + (block - (columns * (HOST_W + HOST_GAP) - HOST_GAP)) / 2
        for number, host in enumerate(hosts):
            centres[host.name] = start + number * (HOST_W + HOST_GAP) + HOST_W / 2
        centres[leaf.name] = x + block / 2
        x += block + LEAF_GAP
    extent = max(x - LEAF_GAP, len(network.spines) * (SWITCH_W + 24) - 24)
    for number, spine in enumerate(network.spines):
        centres[spine.name] = extent * (number + 0.5) / len(network.spines)
    narrow = extent - (x - LEAF_GAP)
    centres = {name: at + (0 if name.startswith("spine") else narrow / 2) for name, at in centres.items()}
    return centres, extent + 2 * MARGIN


def _extent(centres: dict[str, float]) -> float:
    """Twice the middle of the picture: what centring has to shift by."""
    return min(centres.values()) + max(centres.values())


def _draw_order(link: Link) -> tuple[bool, int]:
    """Exceptions last, on top of the rest."""
    return (not link.up or link.a_port.loss > 0, -min(link.a_port.rate_bps, link.b_port.rate_bps))


def _link(link: Link, places: dict[str, tuple[float, float]], colours: dict[int, str]) -> str:
    (x1, y1), (x2, y2) = places[link.a_port.node], places[link.a_port.peer]
    slow = min(link.a_port, link.b_port, key=lambda port: port.rate_bps)
    dash = ' stroke-dasharray="7 6"' if not link.up else ' stroke-dasharray="2 4"' if _loss(link) else ""
    return (
        f'<line x1="{x1:g}" y1="{y1 - HOST_H / 2:g}" x2="{x2:g}" y2="{y2 + SWITCH_H / 2:g}" '
        f'stroke="{colours[slow.rate_bps]}" stroke-width="2"{dash}>'
        f"<title>{escape(_facts(link))}</title></line>"
    )


def _loss(link: Link) -> float:
    return max(link.a_port.loss, link.b_port.loss)


def _facts(link: Link) -> str:
    parts = []
    for port in (link.a_port, link.b_port):
        loss = f", loss {format_fraction(port.loss)}" if port.loss else ""
        parts.append(f"{port.name} {format_rate(port.rate_bps)}, {format_duration(port.delay_ns)}{loss}")
    return "; ".join(parts) + ("" if link.up else "; down")


def _node(node: Node, x: float, y: float) -> str:
    width, height = (HOST_W, HOST_H) if node.kind == "host" else (SWITCH_W, SWITCH_H)
    label = "mid small" if node.kind == "host" else "mid"
    return (
        f'<g><rect class="{node.kind}" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" '
        f'rx="6"/><text class="{label}" x="{x:g}" y="{y + 4.5:g}">{node.name}</text></g>'
    )


def _legend(network: Network, colours: dict[int, str], y: float, width: float) -> tuple[list[str], float]:
    entries = [(colour, "", format_rate(rate)) for rate, colour in colours.items()]
    if any(not link.up for link in network.links):
        entries.append(("#57606a", ' stroke-dasharray="7 6"', "down"))
    if any(_loss(link) for link in network.links):
        entries.append(("#57606a", ' stroke-dasharray="2 4"', "loses packets"))
    lines: list[str] = []
    x = float(MARGIN)
    for colour, dash, label in entries:
        lines.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{x + 34:g}" y2="{y:g}" stroke="{colour}" stroke-width="3"{dash}/>'
        )
        lines.append(f'<text class="note" x="{x + 42:g}" y="{y + 4.5:g}">{escape(label)}</text>')
        x += 62 + 8 * len(label)
    note = _note(network)
    return [f'<text class="note" x="{MARGIN}" y="52">{escape(note)}</text>', *lines], max(
        width, x + MARGIN, 2 * MARGIN + 7.4 * max(len(note), len(network.name))
    )


def _note(network: Network) -> str:
    def kinds(nodes: Iterable[Node], one: str, many: str) -> str:
        number = len(list(nodes))
        return f"{number} {one if number == 1 else many}"

    parts = [kinds(network.hosts, "host", "hosts"), kinds(network.leaves, "leaf", "leaves")]
    if network.spines:
        parts.append(kinds(network.spines, "spine", "spines"))
    return ", ".join(parts) + f", mtu {network.mtu}"
