"""Whether switches trim in a run, and what else follows from it: the last hop of the MRC profile does not mark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.topology.model import Override, Topology


def with_trimming(topology: Topology, *, kind: str, choice: str, credit: bool) -> tuple[Topology, list[str]]:
    """The topology as this run has it, and notes on what was changed that nobody asked for.

    `choice` is `on` or `off` for all switch ports, or `topology` for what the file says. Only MRC knows trimmed packets, so
    with other transports nothing is trimmed. With MRC, if switches trim or the receiver grants credit (`credit`), the ports
    towards hosts do not mark unless the file sets `ecn.last_hop` itself: a mark then means imbalance in the core, since the
    receiver sees its own port's queue by trims, round trips and credits (arXiv 2605.04333, 4.2; uet-htsim).
    """
    if choice == "on" and kind != "mrc":
        raise UsageError(
            f"{kind} cannot use trimmed packets: it has no answer that names one",
            where="--trim",
            remedy="use --transport mrc",
        )
    notes = []
    trims = any(port.trim for port in topology.network().ports)
    if choice == "on":
        topology = _set_trim(topology, True)
        trims = True
    elif trims and (choice == "off" or kind != "mrc"):
        if choice != "off":
            notes.append(
                f"trimming: off, though the topology has it: {kind} has no answer to a trimmed packet, mrc has"
            )
        topology = _set_trim(topology, False)
        trims = False
    ecn = topology.ecn
    if kind == "mrc" and (trims or credit) and ecn.enabled and "last_hop" not in ecn.model_fields_set:
        topology = topology.model_copy(update={"ecn": ecn.model_copy(update={"last_hop": False})})
        why = "switches trim" if trims else "the receiver grants credit"
        notes.append(f"ECN: off towards hosts, as MRC wants it where {why}; set ecn.last_hop to decide otherwise")
    return topology, notes


def _set_trim(topology: Topology, on: bool) -> Topology:
    """All switch ports, whatever single links say."""
    plain = [o.model_copy(update={"trim": None}) for o in topology.overrides]
    return topology.model_copy(
        update={
            "queue": topology.queue.model_copy(update={"trim": on}),
            "overrides": tuple(o for o in plain if _says_something(o)),
        }
    )


def _says_something(override: Override) -> bool:
    return any(getattr(override, key) is not None for key in ("rate", "delay", "loss", "limit", "ecn", "state"))
