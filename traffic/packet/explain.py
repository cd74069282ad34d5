"""Take one frame apart for a reader: every field, its place, its value in words, and whether the ICRC covers it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from traffic.errors import TrafficError
from traffic.packet import dscp as code_points
from traffic.packet.headers import describe_syndrome
from traffic.packet.icrc import icrc_of, icrc_ok, masked_fields
from traffic.packet.layout import BTH, ETHERNET, EXTENSION, IPV4, IPV6, UDP, Field
from traffic.packet.mrc_headers import EndpointOp, NackReason, PathMark
from traffic.packet.opcodes import EXT_BYTES, FLAG_TS, ROCE_PORT, Opcode, extensions

_WHERE = "packet"
_DSCP_NAMES = {
    code_points.DATA: "data",
    code_points.CONTROL: "control",
    code_points.TRIMMED: "trimmed in the core",
    code_points.TRIMMED_LAST_HOP: "trimmed at the last hop",
}
_ECN_NAMES = ("not capable", "ECT(1)", "ECT(0)", "congestion experienced")


@dataclass(frozen=True, slots=True)
class Value:
    """One field of a frame. `bit` counts from the start of the frame; `cover` is covered, masked or outside."""

    field: Field
    bit: int
    value: int
    text: str
    cover: str


@dataclass(frozen=True, slots=True)
class Section:
    """One header (or payload, pad, ICRC) in bytes [start, end) of the frame."""

    name: str
    start: int
    end: int
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A frame taken apart; `icrc_good` is None where a switch has cut the ICRC off."""

    frame: bytes
    sections: tuple[Section, ...]
    opcode: int
    opcode_name: str
    stored: str
    computed: str
    icrc_good: bool | None
    masked: tuple[tuple[int, int, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, offsets in bytes from the start of the frame."""
        return {
            "bytes": len(self.frame),
            "opcode": {"value": self.opcode, "name": self.opcode_name},
            "icrc": {"stored": self.stored, "computed": self.computed, "good": self.icrc_good},
            "trimmed": self.icrc_good is None,
            "masked": [{"start": start, "end": end, "name": name} for start, end, name in self.masked],
            "sections": [
                {
                    "name": section.name,
                    "start": section.start,
                    "end": section.end,
                    "hex": self.frame[section.start : section.end].hex(),
                    "fields": [
                        {
                            "name": v.field.name,
                            "byte": v.bit // 8,
                            "bit": v.bit % 8,
                            "bits": v.field.bits,
                            "value": v.value,
                            "text": v.text,
                            "icrc": v.cover,
                        }
                        for v in section.values
                    ],
                }
                for section in self.sections
            ],
        }


def explain(frame: bytes) -> Explanation:
    """Take `frame` apart, given from Ethernet or from its IP header on.

    Raises TrafficError where it is no RoCE v2 packet, saying at which byte that shows.
    """
    ip = 14 if frame[12:14] in (b"\x08\x00", b"\x86\xdd") else 0
    packet = frame[ip:]
    version = packet[0] >> 4 if packet else 0
    if version not in (4, 6):
        raise TrafficError(
            f"{len(frame)} bytes that are neither an Ethernet frame of type IPv4 or IPv6 nor an IP packet",
            where=_WHERE,
            remedy="give the frame from its destination MAC on, or the packet from its IP header on",
        )
    fields = {ip + field.start: field for field in masked_fields(packet)}
    masked = tuple((at, at + f.end - f.start, f.name) for at, f in sorted(fields.items()))
    mask = bytearray(len(frame))
    for at, field in fields.items():
        mask[at : at + len(field.mask)] = field.mask
    udp = ip + (40 if version == 6 else (packet[0] & 15) * 4)
    bth = udp + 8
    if int.from_bytes(frame[udp + 2 : bth - 4]) != ROCE_PORT:
        raise TrafficError(
            f"UDP destination port {int.from_bytes(frame[udp + 2 : udp + 4])} is not RoCE v2",
            where=f"{_WHERE}, byte {udp + 2}",
            remedy=f"RoCE v2 and MRC go to port {ROCE_PORT}",
        )
    total = int.from_bytes(packet[2:4]) if version == 4 else 40 + int.from_bytes(packet[4:6])
    end = ip + total
    if end > len(frame):
        raise TrafficError(
            f"the IP header says {total} bytes, {len(packet)} are here", where=_WHERE, remedy="give the whole packet"
        )
    reader = _Reader(frame, mask, ip)
    sections = [reader.section("Ethernet", ETHERNET, 0)] if ip else []
    sections += [reader.section("IPv4", IPV4, ip) if version == 4 else reader.section("IPv6", IPV6, ip)]
    if version == 4 and udp > ip + 20:
        sections.append(Section("IPv4 options", ip + 20, udp))
    sections += [reader.section("UDP", UDP, udp), reader.section("BTH", BTH, bth)]
    opcode = frame[bth]
    known = opcode in Opcode._value2member_map_
    at = bth + 12
    for header in extensions(opcode, timestamp=bool(frame[bth + 8] & FLAG_TS)) if known else ():
        if at + EXT_BYTES[header] > end:
            raise TrafficError(
                f"the packet ends inside the {header} that {Opcode(opcode).name} carries",
                where=f"{_WHERE}, byte {at}",
                remedy="the opcode is damaged, or the packet is cut short",
            )
        sections.append(reader.section(header, EXTENSION[header], at))
        at += EXT_BYTES[header]
    trimmed = _tos(packet) >> 2 in (code_points.TRIMMED, code_points.TRIMMED_LAST_HOP)
    stored = computed = ""
    if not trimmed:
        pad = frame[bth + 1] >> 4 & 3
        tail = end - 4 - pad
        if tail < at:
            raise TrafficError(
                f"no room for {pad} pad bytes and the ICRC", where=f"{_WHERE}, byte {at}", remedy="check the IP length"
            )
        sections.append(Section("payload", at, tail))
        sections.append(Section("pad", tail, end - 4))
        sections.append(Section("ICRC", end - 4, end))
        stored, computed = frame[end - 4 : end].hex(), icrc_of(packet).hex()
    else:
        sections.append(Section("payload", at, end))
    sections.append(Section("Ethernet padding", end, len(frame)))
    return Explanation(
        frame=frame,
        sections=tuple(s for s in sections if s.end > s.start),
        opcode=opcode,
        opcode_name=Opcode(opcode).name if known else "unknown",
        stored=stored,
        computed=computed,
        icrc_good=None if trimmed else icrc_ok(packet),
        masked=masked,
    )


class _Reader:
    def __init__(self, frame: bytes, mask: bytearray, ip: int) -> None:
        self._frame = int.from_bytes(frame)
        self._mask = int.from_bytes(mask)
        self._bits = len(frame) * 8
        self._ip_bit = ip * 8

    def section(self, name: str, fields: tuple[Field, ...], start: int) -> Section:
        bit = start * 8
        values = []
        for field in fields:
            ones = (1 << field.bits) - 1
            shift = self._bits - bit - field.bits
            value = self._frame >> shift & ones
            hidden = self._mask >> shift & ones
            cover = "outside" if bit < self._ip_bit else "masked" if hidden else "covered"
            values.append(Value(field, bit, value, f"{_plain(field, value)}{_words(name, field.name, value)}", cover))
            bit += field.bits
        return Section(name, start, bit // 8, tuple(values))


def _tos(packet: bytes) -> int:
    return packet[1] if packet[0] >> 4 == 4 else (packet[0] << 4 | packet[1] >> 4) & 0xFF


def _plain(field: Field, value: int) -> str:
    if field.style == "mac":
        return value.to_bytes(6).hex(":")
    if field.style == "ip":
        return str(ipaddress.IPv4Address(value) if field.bits == 32 else ipaddress.IPv6Address(value))
    if field.style == "hex":
        return f"0x{value:0{(field.bits + 3) // 4}x}"
    if field.style == "signed" and value >> field.bits - 1:
        return str(value - (1 << field.bits))
    return str(value)


def _words(section: str, name: str, value: int) -> str:
    text = ""
    if name == "dscp":
        text = _DSCP_NAMES.get(value, "")
    elif name == "ecn":
        text = _ECN_NAMES[value]
    elif (section, name) == ("BTH", "opcode"):
        text = Opcode(value).name if value in Opcode._value2member_map_ else "unknown"
    elif (section, name) == ("AETH", "syndrome"):
        text = describe_syndrome(value)
    elif (section, name) == ("NETH", "reason"):
        text = NackReason(value).name if value in NackReason._value2member_map_ else "unknown"
    elif (section, name) == ("SETH", "m") and value in PathMark._value2member_map_:
        text = PathMark(value).name
    elif name == "op" and value in EndpointOp._value2member_map_:
        text = EndpointOp(value).name
    return f" ({text})" if text else ""
