"""`fabriclab packet`: build, explain and check one packet, without privilege and without a fabric."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from emulator.cli.packet_io import hex_bytes, read_frame, write_capture
from emulator.cli.session import tell
from emulator.errors import UsageError
from emulator.topology.suggest import nearest
from traffic.errors import TrafficError
from traffic.packet.opcodes import EXTENSIONS, SPORT_MAX, SPORT_MIN, Opcode, ext_bytes, extensions

if TYPE_CHECKING:
    from rich.console import Console

    from traffic.packet.explain import Explanation

LARGEST_PATH_MTU = 4096
_NAMES = {op.name.lower().replace("_", "-"): op for op in Opcode}
_SHORT = {"ack": Opcode.RC_ACKNOWLEDGE, "atomic-ack": Opcode.RC_ATOMIC_ACKNOWLEDGE, "mrc-ack": Opcode.MRC_ACKNOWLEDGE}


class _OpcodeType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """An opcode by name (write-only, uc-send-only, mrc-sack; RC is the default) or number (0x0a)."""

    name = "opcode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Opcode:
        """The opcode; click's usage error offers the nearest name."""
        if isinstance(value, Opcode):
            return value
        text = str(value).lower().replace("_", "-").removeprefix("rdma-").replace("-rdma-", "-")
        if text in _SHORT:
            return _SHORT[text]
        for name in (text, f"rc-{text}", f"ud-{text}", f"mrc-{text}"):
            if name in _NAMES:
                return _NAMES[name]
        try:
            return Opcode(int(text, 0))
        except ValueError:
            known = [*(name.removeprefix("rc-") for name in _NAMES), *_SHORT, *_NAMES]
            self.fail(f'no opcode "{value}"; {nearest(text, known, most=6)}', param, ctx)


class _Number(click.IntRange):
    """An integer in a range, decimal or 0x."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; click's usage error names the range."""
        if isinstance(value, str) and value.lower().startswith("0x"):
            try:
                value = int(value, 16)
            except ValueError:
                self.fail(f'"{value}" is not a hex number', param, ctx)
        number: int = super().convert(value, param, ctx)
        return number


OPCODE = _OpcodeType()


@click.group()
def packet() -> None:
    """Build, explain and check one packet."""


@packet.command()
@click.argument("opcode", type=OPCODE)
@click.option("--psn", type=_Number(0, 0xFFFFFF), default=0, help="Packet sequence number.")
@click.option("--payload", default="", metavar="TEXT", help="Payload as text.", show_default=False)
@click.option("--payload-hex", default="", metavar="HEX", help="Payload as hex.", show_default=False)
@click.option("--payload-bytes", type=click.IntRange(0, LARGEST_PATH_MTU), default=0, help="That many zero bytes.")
@click.option("--src", default="10.0.0.1", help="IPv4 or IPv6 address of the sender.")
@click.option("--dst", default="10.0.0.2", help="IPv4 or IPv6 address of the receiver.")
@click.option("--src-mac", default="02:00:00:00:00:01", help="MAC of the sender.")
@click.option("--dst-mac", default="02:00:00:00:00:02", help="MAC of the next hop.")
@click.option("--qpn", type=_Number(0, 0xFFFFFF), default=0x12, help="Destination queue pair.")
@click.option("--sport", type=_Number(0, 0xFFFF), default=SPORT_MIN, help="UDP source port (entropy).")
@click.option("--dscp", type=click.IntRange(0, 63), default=None, help="Class of traffic.  [default: the opcode's]")
@click.option("--ecn", type=click.IntRange(0, 3), default=None, help="ECN bits.  [default: the opcode's]")
@click.option("--ttl", type=click.IntRange(1, 255), default=64, help="Hops.")
@click.option("--ack-req", is_flag=True, help="Ask for an acknowledgement.")
@click.option("--timestamp", is_flag=True, help="MRC writes: with a TSETH.")
@click.option(
    "--set", "settings", multiple=True, metavar="HEADER.FIELD=VALUE",
    help="Any field: --set RETH.va=0x1000 --set AETH.syndrome=0x60. Repeatable; `packet show OPCODE` lists them.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a pcap file instead of hex."
)
def craft(
    opcode: Opcode,
    psn: int,
    payload: str,
    payload_hex: str,
    payload_bytes: int,
    src: str,
    dst: str,
    src_mac: str,
    dst_mac: str,
    qpn: int,
    sport: int,
    dscp: int | None,
    ecn: int | None,
    ttl: int,
    ack_req: bool,
    timestamp: bool,
    settings: tuple[str, ...],
    output: Path | None,
) -> None:
    """Build one packet of OPCODE; hex on standard output, or a capture file.

    Lengths, pad, checksum and ICRC are set. For example: fabriclab packet craft write-only --payload hello -o f.pcap
    """
    given = [text for text in (payload, payload_hex, payload_bytes) if text]
    if len(given) > 1:
        raise UsageError("more than one payload", where="packet craft", remedy="give one of the --payload flags")
    data = payload.encode() or hex_bytes(payload_hex, "--payload-hex") or bytes(payload_bytes)
    if len(data) > LARGEST_PATH_MTU:
        raise UsageError(
            f"a payload of {len(data)} bytes", where="--payload", remedy=f"the largest path MTU is {LARGEST_PATH_MTU}"
        )
    if data and not opcode.carries_payload:
        raise UsageError(f"{opcode.name} carries no payload", where="--payload", remedy="leave the payload out")
    _check_timestamp(opcode, timestamp)
    _check_addresses(src, dst, {"--src-mac": src_mac, "--dst-mac": dst_mac})

    from traffic.packet.roce import BTH, default_tos, roce_frame

    tos = default_tos(opcode)
    tos = (tos >> 2 if dscp is None else dscp) << 2 | (tos & 3 if ecn is None else ecn)

    frame = roce_frame(
        opcode,
        src_ip=src,
        dst_ip=dst,
        src_mac=src_mac,
        dst_mac=dst_mac,
        dest_qpn=qpn,
        psn=psn,
        payload=data,
        sport=sport,
        tos=tos,
        ttl=ttl,
        timestamp=timestamp,
    )
    frame[BTH].ackreq = int(ack_req)
    for setting in settings:
        _set_field(frame, setting)
    raw = bytes(frame)
    if not SPORT_MIN <= sport <= SPORT_MAX:
        tell(f"note: source port {sport} is outside {SPORT_MIN}-{SPORT_MAX}, where RoCE keeps its entropy")
    if output is None:
        click.echo(raw.hex())
        return
    write_capture(output, raw)
    tell(f"wrote one {opcode.name} packet of {len(raw)} bytes to {output}")


@packet.command()
@click.argument("opcode", type=OPCODE, required=False)
@click.option("--ip", "ip_version", type=click.Choice(["4", "6"]), default="4", help="IP version.")
@click.option("--timestamp", is_flag=True, help="MRC writes: with a TSETH.")
@click.option("--only-roce", is_flag=True, help="Leave out Ethernet, IP and UDP.")
def show(opcode: Opcode | None, ip_version: str, timestamp: bool, only_roce: bool) -> None:
    """Draw and explain every header of OPCODE, byte by byte; without OPCODE, list them all."""
    from emulator.cli.packet_view import opcode_table, show_headers

    console = _console()
    if opcode is None:
        _refuse_without_opcode()
        rows = [
            (
                int(op),
                name.removeprefix("rc-"),
                op.name,
                " ".join(EXTENSIONS[op]) or "-",
                ext_bytes(op),
                op.carries_payload,
            )
            for name, op in _NAMES.items()
        ]
        console.print(opcode_table(rows))
        return
    _check_timestamp(opcode, timestamp)
    show_headers(console, opcode, ip_version=int(ip_version), timestamp=timestamp, only_roce=only_roce)


@packet.command()
@click.argument("source", metavar="HEX|FILE")
@click.option("--index", type=click.IntRange(1), default=1, help="Which packet of a capture file.")
@click.option("--json", "as_json", is_flag=True, help="The explanation as JSON on standard output.")
@click.pass_context
def decode(ctx: click.Context, source: str, index: int, as_json: bool) -> None:
    """Explain one packet and check its ICRC; exit code 1 if the ICRC is bad.

    Hex may have spaces, colons, offsets as in the dumps of tcpdump -xx and xxd, and may start with Ethernet or with the
    IP header. FILE holds hex, or is a pcap or pcapng; - is hex on standard input.
    """
    from traffic.packet.explain import explain

    frame = read_frame(source, index)
    try:
        explanation = explain(frame)
    except TrafficError as error:
        raise UsageError(error.what, where=error.where, remedy=error.remedy) from error
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2))
    else:
        _print_explanation(explanation)
    if explanation.icrc_good is False:
        ctx.exit(1)


def _print_explanation(explanation: Explanation) -> None:
    from emulator.cli.packet_view import show_explanation

    show_explanation(_console(), explanation)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    return console


def _refuse_without_opcode() -> None:
    """Raises UsageError for a flag of one opcode's headers where all opcodes are listed."""
    ctx = click.get_current_context()
    for name, flag in (("ip_version", "--ip"), ("timestamp", "--timestamp"), ("only_roce", "--only-roce")):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UsageError(
                "the list of opcodes has no headers to draw", where=flag, remedy="name an opcode, such as write-only"
            )


def _check_timestamp(opcode: Opcode, timestamp: bool) -> None:
    if timestamp and extensions(opcode) == extensions(opcode, timestamp=True):
        raise UsageError(f"{opcode.name} has no TSETH", where="--timestamp", remedy="only MRC writes carry one")


def _check_addresses(src: str, dst: str, macs: dict[str, str], *, flag: str = "") -> None:
    import ipaddress
    import re

    versions = set()
    for place, text in (("--src", src), ("--dst", dst)):
        try:
            versions.add(ipaddress.ip_address(text).version)
        except ValueError as error:
            raise UsageError(
                f'"{text}" is no IP address', where=flag or place, remedy="as in 10.0.0.1 or fd00::1"
            ) from error
    if len(versions) > 1:
        raise UsageError(f"{src} and {dst} are of two IP versions", where="--dst", remedy="use IPv4 or IPv6 for both")
    for place, text in macs.items():
        if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
            raise UsageError(f'"{text}" is no MAC address', where=place, remedy="as in 02:00:00:00:00:01")


def _set_field(frame: Any, setting: str) -> None:
    name, equals, text = setting.partition("=")
    header, dot, field = name.partition(".")
    if not (equals and dot):
        raise UsageError(f'"{setting}"', where="--set", remedy="write HEADER.FIELD=VALUE, such as RETH.va=0x1000")
    layers = {layer.__name__.lower(): layer for layer in frame.layers()}
    if header.lower() not in layers:
        names = [layer.__name__ for layer in frame.layers()]
        raise UsageError(f'this packet has no header "{header}"', where="--set", remedy=nearest(header, names))
    layer = frame[layers[header.lower()]]
    names = [known.name for known in layer.fields_desc]
    if field not in names:
        raise UsageError(f'{header} has no field "{field}"', where="--set", remedy=nearest(field, names, most=30))
    try:
        value: int | str = int(text, 0)
    except ValueError:
        value = text
        if layer.name in ("IP", "IPv6") and field in ("src", "dst"):  # Scapy would ask the DNS
            _check_addresses(text, text, {}, flag="--set")
    misfit = UsageError(
        f"{text} does not fit {header}.{field}", where="--set", remedy="see fabriclab packet show for the field's width"
    )
    # Scapy cuts a number to the width of a bit field without a word; reading the frame back shows it.
    try:
        setattr(layer, field, value)
        again = type(frame)(bytes(frame)).getlayer(type(layer))
        kept = again is None or not isinstance(value, int) or int(again.getfieldval(field)) == value
    except (ValueError, TypeError, OSError, KeyError, AttributeError, struct.error) as error:
        raise misfit from error
    if not kept:
        raise misfit
