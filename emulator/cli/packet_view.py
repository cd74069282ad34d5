"""How `fabriclab packet` puts headers and fields on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from traffic.packet.layout import BTH, ETHERNET, EXTENSION, IPV4, IPV6, UDP, Field, picture
from traffic.packet.opcodes import Opcode, extensions

if TYPE_CHECKING:
    from rich.console import Console

    from traffic.packet.explain import Explanation

_NOT_COVERED = {
    "IPv4": {"dscp", "ecn", "ttl", "chksum"},
    "IPv6": {"dscp", "ecn", "fl", "hlim"},
    "UDP": {"chksum"},
    "BTH": {"fecn", "becn", "resv6"},
}


def opcode_table(rows: Iterable[tuple[int, str, str, str, int, bool]]) -> Table:
    """All opcodes: number, the name `craft` takes, the constant, headers behind the BTH and their bytes."""
    table = Table(title="Opcodes", title_justify="left")
    for column in ("opcode", "name", "constant", "headers after the BTH", "bytes", "payload"):
        table.add_column(column, justify="right" if column == "bytes" else "left", no_wrap=True)
    for code, name, constant, headers, size, payload in rows:
        table.add_row(f"0x{code:02x}", name, constant, headers, str(size), "yes" if payload else "no")
    return table


_MRC_NOTE = "MRC: opcodes and layouts come from a third-party reading of OCP MRC 1.0; check before use with hardware."


def show_headers(console: Console, opcode: Opcode, *, ip_version: int, timestamp: bool, only_roce: bool) -> None:
    """Draw each header of the opcode and list its fields with their offsets in the frame."""
    headers: list[tuple[str, tuple[Field, ...]]] = [
        ("Ethernet", ETHERNET),
        ("IPv4", IPV4) if ip_version == 4 else ("IPv6", IPV6),
        ("UDP", UDP),
        ("BTH", BTH),
        *((header.value, EXTENSION[header]) for header in extensions(opcode, timestamp=timestamp)),
    ]
    bit = 0
    console.print(f"[bold]{opcode.name}[/] (0x{opcode:02x}): " + " | ".join(name for name, _ in headers))
    for name, fields in headers:
        size = sum(field.bits for field in fields) // 8
        if only_roce and name in ("Ethernet", "IPv4", "IPv6", "UDP"):
            bit += size * 8
            continue
        console.print()
        console.print(f"[bold]{name}[/]: bytes {bit // 8} to {bit // 8 + size - 1} ({size} bytes)")
        console.print(Text("\n".join(picture(fields)), no_wrap=True))
        table = Table("byte", "bits", "field", "meaning", "ICRC")
        for field in fields:
            covered = name != "Ethernet" and field.name not in _NOT_COVERED.get(name, ())
            cover = "outside" if name == "Ethernet" else "covered" if covered else "masked"
            table.add_row(_place(bit), str(field.bits), field.name, field.meaning, cover)
            bit += field.bits
        console.print(table)
    console.print()
    tail = "payload, pad to 4 bytes, " if opcode.carries_payload else ""
    console.print(f"Then: {tail}ICRC (4 bytes, least significant first). Header bytes: {bit // 8}.")
    if opcode.is_mrc:
        console.print(_MRC_NOTE)


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Tables of every header with values, then the verdict on the ICRC and the ranges it does not cover."""
    console.print(f"[bold]{explanation.opcode_name}[/] (0x{explanation.opcode:02x}), {len(explanation.frame)} bytes")
    for section in explanation.sections:
        raw = explanation.frame[section.start : section.end]
        span = f"bytes {section.start} to {section.end - 1}"
        if not section.values:
            shown = raw[:32].hex(" ") + (" ..." if len(raw) > 32 else "")
            console.print(Text(f"{section.name}: {span} ({len(raw)} bytes): {shown}"))
            continue
        console.print(f"[bold]{section.name}[/]: {span}")
        table = Table("byte", "bits", "field", "value", "meaning", "ICRC")
        for value in section.values:
            cells = (value.field.name, value.text, value.field.meaning, value.cover)
            table.add_row(_place(value.bit), str(value.field.bits), *(Text(cell) for cell in cells))
        console.print(table)
    if explanation.opcode_name.startswith("MRC_"):
        console.print(_MRC_NOTE)
    if explanation.icrc_good is None:
        console.print("ICRC: [bold]cut off[/]; the DSCP says that a switch trimmed this packet to its headers")
        return
    if explanation.icrc_good:
        console.print(f"ICRC: [bold green]good[/] ({explanation.stored})")
    else:
        console.print(
            f"ICRC: [bold red]BAD[/]: the packet has {explanation.stored}, it should be {explanation.computed}"
        )
    console.print("Masked, so any value is fine there:")
    for start, end, name in explanation.masked:
        span = f"byte {start}" if end - start == 1 else f"bytes {start} to {end - 1}"
        console.print(f"  {span}: {name}")


def _place(bit: int) -> str:
    return f"{bit // 8}" if bit % 8 == 0 else f"{bit // 8}.{bit % 8}"
