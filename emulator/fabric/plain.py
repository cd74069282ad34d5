"""Plain Mininet, as a baseline to measure against."""

from __future__ import annotations

import time
from typing import Any

from mininet.link import Link
from mininet.log import setLogLevel
from mininet.node import Host


def plain_mininet(names: list[str], pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """Mininet's own Host and Link, every node a host: no switch, no queue, no route. Seconds to make and to end them.

    Its network object is left out: it changes limits of the whole machine.
    """
    setLogLevel("error")
    begun = time.monotonic()
    nodes: dict[str, Any] = {}
    try:
        for number, name in enumerate(names):
            nodes[name] = Host(f"b{number}")
        for a, b in pairs:
            Link(nodes[a], nodes[b])
        made = time.monotonic()
    finally:
        for node in nodes.values():
            node.terminate()
    return made - begun, time.monotonic() - made
