"""The reference pages, made from the models of the files and from the commands' own help. Run by scripts/gen-docs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
WIDTH = 100
MADE = "<!-- made by scripts/gen-docs; do not edit -->\n\n"

PARAMETERS = {
    "ranks": "hosts that take part, from host0 on; all of them if left out",
    "senders": "how many hosts send",
    "receiver": "rank of the receiving host",
    "rounds": "repetitions; each begins when the one before has ended",
    "seed": "seed of the choice of partners; the run's seed if left out",
    "pairs": "pairs of ranks, the first sends to the second; host i to host i + N/2 if left out",
    "both_ways": "whether the second of each pair sends back, too",
    "victim_src": "rank that sends the victim flow; the next host that is free if left out",
    "victim_dst": "rank that receives it; the last host that is free if left out",
    "victim_size": "bytes of the victim flow; as each sender's if left out",
    "gap_ns": "time between the starts of two senders, in nanoseconds",
    "root": "rank that the data starts from or ends at",
    "segments": "pieces that the vector is cut into, so that they follow each other along the chain or tree",
}
"""What the parameters of workloads mean; `bytes` of the workload is the size of a flow or of a vector."""


EXAMPLES = {
    "name": "my-fabric",
    "description": "Two racks, one slow uplink.",
    "link": "leaf0:spine1",
    "overrides": "[{link: leaf0:spine1, rate: 25Gbit}]",
    "kmin": "40KB",
    "kmax": "160KB",
    "topology": "fabric.yaml",
    "topology_set": "[uplink.rate=25Gbit]",
    "pcap": "[leaf0:host0]",
    "pcap_snap": "256",
    "time_limit": "100ms",
    "wall_limit_s": "60",
    "seed": "7",
    "tdf": "2000",
    "sample": "5us",
    "kind": "incast",
    "algorithm": "ring",
    "bytes": "1MB",
    "params": "{senders: 7}",
    "values": "[0.7, 0.9, 0.6, 0.8]",
    "cc": "nscc",
    "cc_preset": "hpcc-paper",
    "cc_params": "{timer_ns: 55us}",
    "qps": "8",
    "entropy": "64",
    "deny": "[{via: spine1}]",
    "timeout": "100us",
    "timeout_low": "50us",
    "reorder_window": "10us",
    "probe_interval": "100us",
    "cnp_interval": "50us",
    "retry_count": "7",
    "via": "spine1",
    "at": "100us",
    "until": "500us",
}
"""An example for each key whose type brings none that says enough."""


def topology_page() -> str:
    """Every key of a topology file."""
    from emulator.topology.schema import topology_schema

    schema = topology_schema()
    out = [
        "# Topology file\n",
        "Every key, with the unit in which it is given, its default, and an example. A value with a unit is text such as "
        "`100Gbit`. A key that is not listed here is an error, with the nearest one named. All rates and delays are those of "
        "the network that is meant, on both clocks. `fabriclab topo schema` prints the same as JSON Schema, for editors.\n",
        "```yaml\n" + (ROOT / "topologies" / "slow-uplink.yaml").read_text(encoding="utf-8") + "```\n",
        *_sections(schema, "The file"),
    ]
    return MADE + "\n".join(out)


def experiment_page() -> str:
    """Every key of an experiment file, and the parameters of each workload."""
    from emulator.experiment.spec import Experiment

    schema = Experiment.model_json_schema()
    out = [
        "# Experiment file\n",
        "What `fabriclab run FILE` reads and `--save-spec FILE` writes. Paths in it are relative to the file. "
        "`--set path.to.key=value` puts a value over it; a key of the topology may be set in the same way "
        "(`--set uplink.rate=25Gbit`).\n",
        "```yaml\n" + (ROOT / "labs" / "03-incast" / "dcqcn.yaml").read_text(encoding="utf-8") + "```\n",
        *_sections(schema, "The file"),
        *_workloads(),
    ]
    return MADE + "\n".join(out)


def _sections(schema: dict[str, Any], title: str) -> Iterator[str]:
    """A section for the file and one for each mapping in it, in the order in which they are first named."""
    waiting, seen = [(title, schema)], set[str]()
    while waiting:
        name, part = waiting.pop(0)
        yield f"## {name}\n"
        if part.get("description"):
            yield f"{_plain(part['description'])}\n"
        yield "| key | type | unit | default | meaning | example |\n|---|---|---|---|---|---|"
        for key, field in part["properties"].items():
            kind, unit, example, models = _about(field, schema)
            needed = key in part.get("required", ())
            default = "needed" if needed else _default(field, kind, unit, models)
            example = f"`{EXAMPLES[key]}`" if key in EXAMPLES else example
            meaning = field.get("description") or " ".join(schema["$defs"][model]["description"] for model in models)
            yield f"| `{key}` | {kind} | {unit} | {default} | {_plain(meaning)} | {example} |"
            for model in models:
                if model not in seen:
                    seen.add(model)
                    inside = "" if part is schema else f"{name.strip('`')}."
                    waiting.append((f"`{inside}{key}`", schema["$defs"][model]))
        yield ""


def _about(field: dict[str, Any], schema: dict[str, Any]) -> tuple[str, str, str, list[str]]:
    """Type, unit and example of a field for a reader, and the models it holds."""
    kinds: list[str] = []
    units: list[str] = []
    examples: list[str] = []
    models: list[str] = []
    for part in _alternatives(field):
        if "$ref" in part:
            name = part["$ref"].rsplit("/", 1)[1]
            target = schema["$defs"][name]
            if "properties" in target:
                models.append(name)
                kinds.append("mapping")
                continue
            for deeper in _alternatives(target):
                _note(deeper, kinds, units, examples)
        elif part.get("type") == "array" and isinstance(part.get("items"), dict) and "$ref" in part["items"]:
            models.append(part["items"]["$ref"].rsplit("/", 1)[1])
            kinds.append("list")
        else:
            _note(part, kinds, units, examples)
        for key, bag in (("x-unit", units), ("examples", examples)):
            found = schema["$defs"].get(part.get("$ref", "").rsplit("/", 1)[-1], {}).get(key, part.get(key))
            bag.extend([found] if isinstance(found, str) else found or [])
    if field.get("x-unit"):
        units.append(field["x-unit"])
    example = f"`{examples[0]}`" if examples else _example(field, kinds)
    return " or ".join(dict.fromkeys(kinds)), ", ".join(dict.fromkeys(units)), example, models


def _alternatives(field: dict[str, Any]) -> list[dict[str, Any]]:
    """The forms a value may have, without the one that it is left out."""
    parts = field.get("anyOf") or field.get("allOf") or [field]
    return [part for part in parts if part.get("type") != "null"]


def _note(part: dict[str, Any], kinds: list[str], units: list[str], examples: list[str]) -> None:
    if "enum" in part:
        kinds.append(", ".join(f"`{_word(word)}`" for word in part["enum"]))
        return
    if "const" in part:
        kinds.append(f"`{_word(part['const'])}`")
        return
    low = part.get("minimum", part.get("exclusiveMinimum"))
    high = part.get("maximum")
    names = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true, false",
        "array": "list",
        "object": "mapping",
    }
    kind = names.get(part.get("type", ""), part.get("type", "any"))
    if part.get("type") in ("integer", "number") and low is not None:
        kind += f" from {low}" + (f" to {high}" if high is not None else "")
    kinds.append("quantity" if part.get("x-unit") and part.get("type") == "string" else kind)
    if part.get("x-unit"):
        units.append(part["x-unit"])
    examples.extend(str(text) for text in part.get("examples", ())[:1])


def _example(field: dict[str, Any], kinds: list[str]) -> str:
    """The default, or the first word of a choice, where the type brings no example of its own."""
    default = field.get("default")
    if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
        return f"`{_word(default)}`"
    found = next((kind.partition("`")[2].partition("`")[0] for kind in kinds if kind.startswith("`")), "")
    if found:
        return f"`{found}`"
    return {"whole number": "`4`", "text": "`a-name`", "true, false": "`true`", "mapping": "below", "list": "`[]`"}.get(
        kinds[0].partition(" from")[0] if kinds else "", ""
    )


def _default(field: dict[str, Any], kind: str, unit: str, models: list[str]) -> str:
    from emulator.topology.units import format_duration, format_size

    value = field.get("default")
    if value is None:
        return "below" if models and "default" not in field else "–"
    if isinstance(value, int) and kind.startswith("quantity"):
        return f"`{ {'ns': format_duration, 'bytes': format_size}[unit](value) }`".replace(" ", "")
    if isinstance(value, dict):
        return "below"
    return f"`{_word(value)}`" if value != "" else "–"


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _workloads() -> Iterator[str]:
    from traffic.collective.registry import kinds, parameters

    yield "## Workloads\n"
    yield (
        "`workload.kind` and `workload.algorithm` (the first one listed is the default), and what goes under `workload.params`. `bytes` is "
        "the size of one flow, or of the vector of a collective.\n"
    )
    yield "| kind | algorithms | params |\n|---|---|---|"
    used: dict[str, None] = {}
    for kind, algorithms in kinds().items():
        names = [name for name in parameters(kind, algorithms[0]) if name != "size"]
        used.update(dict.fromkeys(names))
        yield f"| `{kind}` | {', '.join(f'`{a}`' for a in algorithms)} | {', '.join(f'`{n}`' for n in names)} |"
    yield "\n| param | meaning |\n|---|---|"
    for name in used:
        yield f"| `{name}` | {PARAMETERS[name]} |"


def commands_page() -> str:
    """The help of every command."""
    from emulator.cli.main import cli

    out = [
        "# Commands\n",
        "What `--help` says of each. Every flag can be set in the environment as well: `FABRICLAB_COMMAND_FLAG`, such as "
        "`FABRICLAB_INCAST_SENDERS=7`.\n",
        "| exit code | means |\n|---|---|\n| 0 | finished; for a run: the verdict is *trusted* or *use with care* |\n"
        "| 1 | the run failed |\n| 2 | wrong usage, or a wrong file |\n| 3 | the run finished, but its verdict is *do not trust* |\n"
        "| 4 | a privilege or a kernel feature is missing |\n| 130 | interrupted, and cleaned up |\n",
    ]
    settings = {**cli.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(cli, info_name="fabriclab", **settings)
    for path, text in _helps(cli, context):
        out.append(f"## {path}\n\n```text\n{text}\n```\n")
    return MADE + "\n".join(out)


def _helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    lines = command.get_help(context).splitlines()
    yield context.command_path, "\n".join(line.rstrip() for line in lines)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                below = click.Context(
                    found, info_name=name, parent=context, max_content_width=WIDTH, terminal_width=WIDTH
                )
                below.show_default = True
                yield from _helps(found, below)


def pages() -> dict[Path, str]:
    """Every page by its path."""
    made = {"topology": topology_page(), "experiment": experiment_page(), "commands": commands_page()}
    return {PAGES / f"{name}.md": text.rstrip() + "\n" for name, text in made.items()}


def main() -> int:
    """Writes the pages, or with --check says which are not up to date."""
    old = []
    for path, text in pages().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        old.append(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in old:
        print(f"{'not up to date' if '--check' in sys.argv else 'wrote'}: {path}")
    return 1 if old and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
