"""The topology file as a model: every key with its type, unit, default and meaning.

The reference pages and `fabriclab topo schema` are generated from here. All rates and delays are fabric time:
those of the network the user means, not of the machine that emulates it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from emulator.topology.checks import ImpossibleError, find_issues
from emulator.topology.fields import Delay, Fraction, Rate, Size, Strict, count
from emulator.topology.limits import MAX_HOSTS_PER_LEAF, MAX_MTU, MAX_SWITCHES, MIN_MTU, NAME_PATTERN
from emulator.topology.shapes import LINK_CLASSES, SHAPES, Network, build_network

__all__ = ["Ecn", "EcnOverride", "LinkSpec", "Override", "Queue", "Topology"]

Shape = Literal["leaf-spine", "single-switch"]


class LinkSpec(Strict):
    """One class of links; both directions are alike."""

    rate: Rate = Field(default=100 * 10**9, description="Line rate of each direction.")
    delay: Delay = Field(default=500, description="Propagation delay of each direction; 5 ns a metre of fibre.")
    loss: Fraction = Field(default=0.0, description="Share of packets lost at random on the wire, each on its own.")


class Queue(Strict):
    """The queue of an egress port."""

    limit: Size = Field(
        default=4 * 10**6,
        description="Bytes the data queue of a port holds; a packet beyond it is dropped, or trimmed.",
    )
    trim: bool = Field(
        default=False,
        strict=True,
        description="Whether a switch port sends on the headers of a packet that its queue cannot hold (mrc alone uses it).",
    )


class Ecn(Strict):
    """Marking on the instantaneous queue: never below kmin, linear to pmax at kmax, always above kmax."""

    enabled: bool = Field(default=True, strict=True, description="Whether switch ports mark CE at all.")
    kmin: Size = Field(default=100 * 10**3, description="Queue depth at which marking starts.")
    kmax: Size = Field(default=400 * 10**3, description="Queue depth above which every packet is marked.")
    pmax: Fraction = Field(default=0.2, description="Share of packets marked as the queue reaches kmax.")
    last_hop: bool = Field(
        default=True,
        strict=True,
        description="Whether the switch port towards a host marks too; off leaves marks to the fabric's inner ports.",
    )


class EcnOverride(Strict):
    """The marking of one link, where it differs."""

    enabled: bool | None = Field(default=None, strict=True, description="As ecn.enabled, for this link.")
    kmin: Size | None = Field(default=None, description="As ecn.kmin, for this link.")
    kmax: Size | None = Field(default=None, description="As ecn.kmax, for this link.")
    pmax: Fraction | None = Field(default=None, description="As ecn.pmax, for this link.")


class Override(Strict):
    """One link that differs from its class: slower, longer, lossy, shallower, trimming or down."""

    link: str = Field(description="The link, as its two nodes: leaf0:spine1. The order matters for direction only.")
    direction: Literal["both", "forward"] = Field(
        default="both", description="Both directions, or forward: the egress port of the node named first alone."
    )
    rate: Rate | None = Field(default=None, description="Line rate, where it differs.")
    delay: Delay | None = Field(default=None, description="Propagation delay, where it differs.")
    loss: Fraction | None = Field(default=None, description="Share of packets lost at random, where it differs.")
    limit: Size | None = Field(default=None, description="Queue limit, where it differs.")
    trim: bool | None = Field(default=None, strict=True, description="As queue.trim, for this link.")
    ecn: EcnOverride | None = Field(default=None, description="Marking, where it differs.")
    state: Literal["up", "down"] | None = Field(default=None, description="down takes the link out from the start.")


class Topology(Strict):
    """A fabric: its shape, its links, its queues."""

    name: str = Field(
        default="fabric",
        strict=True,
        pattern=NAME_PATTERN,
        description="Name in run ids and reports; the file's name if absent.",
    )
    description: str = Field(
        default="", strict=True, max_length=2000, description="What the fabric is for, in one sentence."
    )
    shape: Shape = Field(default="leaf-spine", description="leaf-spine, or single-switch (one leaf and its hosts).")
    leaves: Annotated[int, count(low=2, high=MAX_SWITCHES)] | None = Field(
        default=None, description="Number of leaf switches; leaf-spine only, required there."
    )
    spines: Annotated[int, count(low=1, high=MAX_SWITCHES)] | None = Field(
        default=None,
        description="Number of spine switches, each linked to every leaf; leaf-spine only, required there.",
    )
    hosts_per_leaf: Annotated[int, count(low=1, high=MAX_HOSTS_PER_LEAF)] | None = Field(
        default=None, description="Number of hosts on each leaf; leaf-spine only, required there."
    )
    hosts: Annotated[int, count(low=2, high=MAX_HOSTS_PER_LEAF)] | None = Field(
        default=None, description="Number of hosts; single-switch only, required there."
    )
    host_link: LinkSpec = Field(default=LinkSpec(), description="Links between hosts and their leaf.")
    uplink: LinkSpec = Field(default=LinkSpec(), description="Links between leaves and spines; leaf-spine only.")
    queue: Queue = Field(default=Queue(), description="Queues of all egress ports.")
    ecn: Ecn = Field(default=Ecn(), description="ECN marking at all switch ports.")
    mtu: Annotated[int, count(low=MIN_MTU, high=MAX_MTU)] = Field(
        default=9000,
        description="Interface MTU in bytes: the largest IP packet.",
        json_schema_extra={"x-unit": "bytes"},
    )
    overrides: tuple[Override, ...] = Field(default=(), max_length=4096, description="Single links that differ.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        issues = find_issues(self)
        if issues:
            raise ImpossibleError(issues)
        return self

    @model_serializer(mode="wrap")
    def _as_a_file_says_it(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the link classes that the shape has not, so that what is written can be read again."""
        foreign = set(LINK_CLASSES) - set(SHAPES[self.shape].link_classes)
        return {key: value for key, value in dump(self).items() if key not in foreign}

    def network(self) -> Network:
        """Every node, port and link with the values in force, overrides applied."""
        return build_network(self)
