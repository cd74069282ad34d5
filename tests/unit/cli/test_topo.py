"""`fabriclab topo`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from emulator.cli.main import main

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
SVG = "{http://www.w3.org/2000/svg}"


def test_check_prints_one_line_for_each_good_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("leafs: 2\n")
    good = TOPOLOGIES / "leaf-spine-2x2x4.yaml"
    assert main(["topo", "check", str(good), str(bad), str(good)]) == 2
    printed = capsys.readouterr()
    line = f"{good}: ok: 8 hosts, 2 leaves, 2 spines, 12 links; queues of 4MB drain in 320 us at 100Gbit"
    assert printed.out.splitlines() == [line, line]
    assert f'{bad}:1:1: unknown key leafs; did you mean "leaves"?' in printed.err
    assert main(["topo", "check", str(good)]) == 0


def test_show_states_k_in_bytes_packets_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "show", str(TOPOLOGIES / "slow-uplink.yaml")]) == 0
    text = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "leaf to spine kmin 40,000 4.4 3.2 us" in rows
    assert "kmax, pmax 20% 160,000 17.7 51.2 us" in rows
    assert "host0 host7 4 2 100Gbit 6.92 us 86,550" in rows
    assert "Oversubscription of a leaf: 2:1 to 3.2:1" in text


def test_show_as_json_has_every_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "show", str(TOPOLOGIES / "slow-uplink.yaml"), "--json", "--set", "leaves=3"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"] == {"hosts": 12, "leaves": 3, "spines": 2, "links": 18, "ports": 36}
    assert len(shown["ports"]) == 36
    slow = [port["name"] for port in shown["ports"] if port["rate_bps"] == 25 * 10**9]
    assert slow == ["leaf0:spine1", "spine1:leaf0"]


def test_drawing_has_every_node_and_link_inside_the_paper(tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    arguments = ["topo", "draw", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"), "-o", str(picture)]
    assert main([*arguments, "--set", "overrides=[{link: leaf0:spine1, state: down}]"]) == 0
    root = ElementTree.parse(picture).getroot()
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert {f"host{n}" for n in range(8)} | {"leaf0", "leaf1", "spine0", "spine1", "down", "100Gbit"} <= set(labels)
    links = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is not None]
    assert len(links) == 12
    dashed = [line for line in links if "stroke-dasharray" in line.attrib]
    assert ["leaf0:spine1" in (line.findtext(f"{SVG}title") or "") for line in dashed] == [True]
    boxes = [box for box in root.iter(f"{SVG}rect") if box.attrib.get("class", "paper") != "paper"]
    assert len(boxes) == 12
    for box in boxes:
        assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
        assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])


def test_draw_refuses_what_it_cannot_write(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topology = str(TOPOLOGIES / "single-switch-8.yaml")
    assert main(["topo", "draw", topology, "-o", "x.png"]) == 2
    assert "let it end in .svg" in capsys.readouterr().err
    assert main(["topo", "draw", topology, "-o", str(tmp_path / "none" / "x.svg")]) == 2
    assert "cannot write the picture: no such file or directory" in capsys.readouterr().err


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "fabriclab topology"
