"""The Wireshark dissector of MRC (`assets/mrc.lua`): where it is, and its tables, made from the packet room's own.

The tables stand in the file between two marks; a test compares them with what `lua_tables` makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from traffic.packet.layout import EXTENSION, Field
from traffic.packet.mrc_headers import EndpointOp, NackReason, PathMark
from traffic.packet.opcodes import EXTENSIONS, Ext

BEGIN: Final = "-- tables: made by emulator/report/dissector.py"
END: Final = "-- end of tables"
_NAMES: Final[Mapping[tuple[Ext, str], Mapping[int, str]]] = {
    (Ext.NETH, "reason"): {int(r): r.name for r in NackReason},
    (Ext.SETH, "m"): {int(m): m.name for m in PathMark},
    (Ext.ERTH, "op"): {int(o): o.name for o in EndpointOp},
    (Ext.EETH, "op"): {int(o): o.name for o in EndpointOp},
}


def dissector_path() -> Path:
    """The file that Wireshark and tshark load (`-X lua_script:FILE`)."""
    return Path(__file__).with_name("assets") / "mrc.lua"


def lua_tables() -> str:
    """Every opcode with its headers and every header with its fields, as Lua."""
    return "\n".join([BEGIN, *_opcodes(), *_headers(), *_values(), END])


def _opcodes() -> Iterator[str]:
    yield "local OPCODES = {"
    for op, headers in EXTENSIONS.items():
        names = ", ".join(f'"{h}"' for h in headers)
        yield f'  [0x{op:02X}] = {{"{op.name}", {{{names}}}, {str(op.carries_payload).lower()}}},'
    yield "}"


def _headers() -> Iterator[str]:
    yield "local HEADERS = {"
    for name, fields in EXTENSION.items():
        yield f"  {name} = {{"
        for field in fields:
            yield f'    {{"{field.name}", {field.bits}, "{_style(field)}", "{field.meaning}"}},'
        yield "  },"
    yield "}"


def _style(field: Field) -> str:
    return "skip" if field.name.startswith("reserved") or field.meaning == "reserved, zero" else field.style


def _values() -> Iterator[str]:
    yield "local VALUES = {"
    for (header, name), values in _NAMES.items():
        inside = ", ".join(f'[{value}] = "{word}"' for value, word in values.items())
        yield f'  ["{header}.{name}"] = {{{inside}}},'
    yield "}"
