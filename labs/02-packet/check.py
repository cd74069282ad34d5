"""Lab 2: headers of captured packets, and a packet of the student's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

from scapy.utils import RawPcapReader

from emulator.collect.capture_text import host_names
from emulator.lab.runs import NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work
from traffic.packet.explain import Explanation, explain
from traffic.packet.icrc import icrc_of
from traffic.packet.opcodes import Opcode
from traffic.packet.parse import Packet, parse

PSN = 4711
CE = 3
WRITES = {
    Opcode.RC_WRITE_FIRST,
    Opcode.RC_WRITE_MIDDLE,
    Opcode.RC_WRITE_LAST,
    Opcode.RC_WRITE_LAST_IMM,
    Opcode.RC_WRITE_ONLY,
    Opcode.RC_WRITE_ONLY_IMM,
}


def frames_of(path: Path) -> list[bytes]:
    """The frames of a capture file. Raises NoSuchRun where it is none."""
    try:
        with RawPcapReader(str(path)) as reader:
            return [bytes(data) for data, _ in reader]
    except Exception as error:
        raise NoSuchRun(f"{path.name} is no capture file ({error})") from error


def check(work: Work, sheet: Sheet) -> None:
    def frames() -> list[bytes]:
        run = work.run("capture.yaml")
        path = run.path / "capture" / "run.pcapng"
        if not path.is_file():
            raise NoSuchRun(f"{run.name} has no capture: run capture.yaml as it is, with its key pcap")
        return frames_of(path)

    def packets() -> list[Packet]:
        return [packet for frame in frames() if (packet := parse(frame)) is not None]

    def first(opcode: Opcode) -> Explanation:
        for frame in frames():
            packet = parse(frame)
            if packet is not None and packet.opcode == opcode:
                return explain(frame)
        raise NoSuchRun(f"the capture has no {opcode.name}")

    def before_payload(opcode: Opcode) -> float:
        return float(next(section.start for section in first(opcode).sections if section.name.lower() == "payload"))

    @cache
    def address(host: str) -> int:
        for text, name in host_names(work.run("capture.yaml").path).items():
            if name == host:
                return int(IPv4Address(text))
        raise NoSuchRun(f"{host} is not in the plan of the run (raw/plan.json)")

    def data(to_host0: list[Packet]) -> list[Packet]:
        return [p for p in to_host0 if p.opcode in WRITES and p.dst_ip == address("host0")]

    def one_pair() -> list[Packet]:
        """The data packets of one queue pair in the order they came."""
        mine = [p for p in data(packets()) if p.src_ip == address("host1")]
        if len(mine) < 2:
            raise NoSuchRun("the capture has no data packets of host1")
        return mine

    def field(explanation: Explanation, section: str, name: str) -> int:
        return next(
            v.value for s in explanation.sections if s.name == section for v in s.values if v.field.name == name
        )

    def steps() -> Iterator[int]:
        mine = one_pair()
        return ((b.psn - a.psn) & 0xFFFFFF for a, b in pairwise(mine))

    def to_host1(opcode: Opcode) -> float:
        return float(sum(p.opcode == opcode and p.dst_ip == address("host1") for p in packets()))

    def survives(place: int, bits: int) -> bool:
        """Whether the ICRC that belongs to a captured packet stays the same when bits of one byte change."""
        packet = bytearray(next(f for f in frames() if (p := parse(f)) is not None and p.opcode in WRITES)[14:])
        before = icrc_of(bytes(packet))
        packet[place] ^= bits
        return icrc_of(bytes(packet)) == before

    def with_reth() -> tuple[int, int]:
        mine = one_pair()
        return sum(len(p.ext) == 16 for p in mine), len(mine)

    def mine() -> Explanation:
        found = frames_of(work.file("mine.pcap"))
        if len(found) != 1:
            raise NoSuchRun(f"mine.pcap holds {len(found)} packets, not one")
        return explain(found[0])

    def good_packet() -> tuple[bool, str]:
        packet = mine()
        faults = []
        if packet.opcode != Opcode.RC_WRITE_ONLY:
            faults.append(f"its opcode is {packet.opcode_name}, not RC_WRITE_ONLY")
        if field(packet, "BTH", "psn") != PSN:
            faults.append(f"its PSN is {field(packet, 'BTH', 'psn')}, not {PSN}")
        if field(packet, "IPv4", "ecn") != CE:
            faults.append(f"its ECN bits are {field(packet, 'IPv4', 'ecn')}: a mark is {CE}")
        if not any(s.name.lower() == "payload" and s.end > s.start for s in packet.sections):
            faults.append("it has no payload")
        if not packet.icrc_good:
            faults.append(f"its ICRC is {packet.stored}, right would be {packet.computed}")
        return not faults, "; ".join(faults) or f"RC Write Only, PSN {PSN}, marked, ICRC {packet.stored} is right"

    sheet.prediction(
        "predict_headers",
        "Predicted: bytes before the payload",
        lambda: before_payload(Opcode.RC_WRITE_FIRST),
        low=20,
        high=200,
    )
    sheet.number(
        "headers_first", "Headers of a Write First", lambda: before_payload(Opcode.RC_WRITE_FIRST), tolerance=0,
        look="`packet decode`: the byte at which the payload begins",
    )  # fmt: skip
    sheet.number(
        "headers_middle", "Headers of a Write Middle", lambda: before_payload(Opcode.RC_WRITE_MIDDLE), tolerance=0,
        look="`packet decode` of a Write Middle",
    )  # fmt: skip
    sheet.number(
        "port", "UDP destination port", lambda: float(field(first(Opcode.RC_WRITE_FIRST), "UDP", "dport")), tolerance=0,
        look="`packet decode`: dport",
    )  # fmt: skip
    sheet.number(
        "psn_step", "Step of the PSN", lambda: float(max(set(steps()))), tolerance=0, look="the PSNs of one queue pair"
    )
    sheet.number(
        "sports", "Source ports of a queue pair", lambda: float(len({p.sport for p in one_pair()})), tolerance=0
    )
    sheet.number(
        "marked", "Marked data packets", lambda: float(sum(p.ecn == CE for p in data(packets()))), tolerance=0,
        look="the ECN bits of packets to host0, or `marking` in the summary",
    )  # fmt: skip
    sheet.number(
        "cnps", "CNPs to host1", lambda: to_host1(Opcode.CNP), tolerance=0, look="`capture show --port leaf0:host1`"
    )
    sheet.number(
        "data_per_ack", "Data packets an acknowledgement",
        lambda: float(round(len(one_pair()) / max(1, to_host1(Opcode.RC_ACKNOWLEDGE)))), tolerance=0,
        look="data packets from host1 and acknowledgements to it",
    )  # fmt: skip
    sheet.choice(
        "icrc_survives",
        "What may change without breaking the ICRC",
        {"ecn": lambda: survives(1, 0x01), "sport": lambda: survives(21, 0x01), "psn": lambda: survives(39, 0x01)},
        because=lambda: (
            "in a captured packet the ICRC "
            + ", ".join(
                f"{'stays' if survives(place, 1) else 'changes'} with {name}"
                for name, place in (("the ECN bits", 1), ("the source port", 21), ("the PSN", 39))
            )
        ),
        points=2,
    )
    sheet.choice(
        "reth_in",
        "Which packets carry a RETH",
        {"first_only": lambda: with_reth()[0] == 1, "every": lambda: with_reth()[0] == with_reth()[1]},
        because=lambda: f"{with_reth()[0]} of {with_reth()[1]} packets of one message carry a RETH",
    )
    sheet.fact("mine", "A packet of one's own", good_packet, points=3)
    sheet.number(
        "my_pad", "Pad bytes of one's own packet", lambda: float(field(mine(), "BTH", "padcount")), tolerance=0,
        look="`packet decode mine.pcap`: padcount; payload and pad make a multiple of 4",
    )  # fmt: skip
