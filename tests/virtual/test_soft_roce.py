"""Our RC queue pair and Linux's own Soft-RoCE (rdma_rxe), in a guest kernel built with it.

One guest runs every exchange (`soft_roce/talk.py`): each of the two asks the other, on a wire that loses or spoils chosen packets
at our end. `placed` compares every byte of both registered memories. Soft-RoCE's own counters tell what it accepted: it counts
a packet as received once headers and ICRC were right (Linux 6.12, drivers/infiniband/sw/rxe/rxe_recv.c, rxe_rcv).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.clock.kernel import find_kernel, kernel_info
from emulator.clock.virtual import run_guest
from tests.virtual.soft_roce.talk import IMMEDIATE, LARGE_MTU, LINUX_PSN, MIDDLE, PACKETS, PSN, SIZE

pytestmark = pytest.mark.virtual

ROOT = Path(__file__).parents[2]
PEER = Path(__file__).with_name("soft_roce") / "peer.c"
SIDES = ("ours", "linux")
VERBS = ("write", "read")
BOTH = [(side, verb) for side in SIDES for verb in VERBS]

Told = dict[str, Any]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """By the name of each exchange, what happened in it."""
    kernel = find_kernel(with_rxe=True)
    if kernel is None or not kernel_info(kernel)["features"]["soft-roce"]:
        pytest.skip("needs a guest kernel with Soft-RoCE: run `fabriclab kernel build --with-rxe`")
    if not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip("needs the verbs library: `apt-get install libibverbs-dev ibverbs-providers`")
    folder = tmp_path_factory.mktemp("soft-roce")
    peer = folder / "peer"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(peer), str(PEER), "-libverbs"], check=True)
    lines: list[str] = []
    code = run_guest(
        [sys.executable, "-m", "tests.virtual.soft_roce.talk", str(peer)],
        run_dir=folder,
        wall_limit_s=120,
        on_line=lines.append,
        env={"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        kernel=kernel,
    )
    assert code == 0, "\n".join(lines[-30:])
    found: Told = json.loads(lines[-1])
    return found


def ways(side: str, verb: str) -> tuple[str, str]:
    """Which way the data goes, and the other one: a WRITE's comes from the one who asks, a READ's from the one asked."""
    return ("out", "into") if (side == "ours") == (verb == "write") else ("into", "out")


def psns(packets: list[list[Any]]) -> list[int]:
    return [psn for _, psn, _ in packets]


def of(packets: list[list[Any]], word: str) -> list[int]:
    """PSNs of the packets whose opcode or syndrome has this word."""
    return [psn for opcode, psn, syndrome in packets if word in opcode or word in syndrome]


def assert_whole(one: Told) -> None:
    """The data arrived, and Soft-RoCE accepted every packet of ours but those that were lost or spoiled on the way."""
    assert (one["status"], one["placed"]) == ("success", True)
    assert one["counters"]["rcvd_pkts"] == len(one["out"]) - one["harmed"]["out"]
    assert one["counters"]["sent_pkts"] == len(one["into"])


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_data_in_place_and_every_icrc_accepted(told: Told, side: str, verb: str) -> None:
    one = told[f"{side} {verb}"]
    data, other = ways(side, verb)
    assert_whole(one)
    assert one["icrc_errors"] == 0
    kind = "RC_WRITE" if verb == "write" else "RC_READ_RESPONSE"
    assert [opcode for opcode, _, _ in one[data]] == [
        f"{kind}_FIRST",
        *[f"{kind}_MIDDLE"] * (PACKETS - 2),
        f"{kind}_LAST",
    ]
    assert {syndrome for _, _, syndrome in one[other]} <= {"", "ACK, no credit information"}
    if verb == "write":
        assert psns(one[other])[-1] == psns(one[data])[-1], "the last acknowledgement is for the last packet"


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_large_packets(told: Told, side: str, verb: str) -> None:
    one = told[f"{side} {verb}, large MTU"]
    assert_whole(one)
    assert len(one[ways(side, verb)[0]]) == -(-SIZE // LARGE_MTU)


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_what_routers_change_leaves_the_icrc_right(told: Told, side: str, verb: str) -> None:
    """TTL, CE mark and header checksum of every packet were changed on the way, in both directions."""
    one = told[f"{side} {verb}, marked"]
    assert_whole(one)
    assert (one["icrc_errors"], len(one[ways(side, verb)[0]])) == (0, PACKETS)


@pytest.mark.parametrize(("side", "first"), [("ours", PSN), ("linux", LINUX_PSN)])
def test_psns_wrap(told: Told, side: str, first: int) -> None:
    data, _ = ways(side, "write")
    assert psns(told[f"{side} write"][data]) == [(first + i) % (1 << 24) for i in range(PACKETS)]


@pytest.mark.parametrize("harm", ["lost", "spoiled"])
@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_a_packet_lost_or_with_a_wrong_icrc_is_sent_again(told: Told, side: str, verb: str, harm: str) -> None:
    """A packet that was harmed must not be taken: the receiver asks again for exactly that PSN, and the data is whole."""
    one = told[f"{side} {verb}, one {harm}"]
    data, other = ways(side, verb)
    assert_whole(one)
    harmed = psns(one[data])[MIDDLE]
    assert psns(one[data]).count(harmed) == 2
    if verb == "write":
        assert of(one[other], "NAK, PSN sequence") == [harmed]
    else:
        assert of(one[other], "READ_REQUEST") == [psns(one[data])[0], harmed]
    assert one["harmed"] == {data: 1, other: 0}
    assert one["icrc_errors"] == (harm == "spoiled" and data == "into")
    if side == "ours":
        assert one["counters"]["out_of_seq_request" if verb == "write" else "duplicate_request"] == 1
        assert one["timeouts"] == 0, "no timer was needed"


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_first_and_last_packet_lost(told: Told, side: str, verb: str) -> None:
    one = told[f"{side} {verb}, ends lost"]
    data, _ = ways(side, verb)
    assert_whole(one)
    assert one[data][0][0].endswith("_FIRST") and psns(one[data]).count(psns(one[data])[0]) == 2


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_the_timer_helps_when_the_other_way_loses(told: Told, side: str, verb: str) -> None:
    """The last acknowledgements of a WRITE, or the request of a READ: only a time-out brings it on, and duplicates do no harm."""
    one = told[f"{side} {verb}, other way lost"]
    data, other = ways(side, verb)
    assert_whole(one)
    if verb == "read":
        assert of(one[other], "READ_REQUEST") == [psns(one[data])[0]] * 2
        assert len(one[data]) == PACKETS
    else:
        assert len(one[data]) > PACKETS
        assert psns(one[other])[-1] == max(psns(one[data]), key=psns(one[data]).index)
    if side == "ours":
        assert one["timeouts"] == 1
        assert one["counters"].get("duplicate_request", 0) == (one["retransmitted"] if verb == "write" else 0)


@pytest.mark.parametrize("side", SIDES)
def test_send_with_immediate(told: Told, side: str) -> None:
    one = told[f"{side} send"]
    assert_whole(one)
    if side == "ours":
        assert one["received"] == f"success {SIZE} {IMMEDIATE}"
    else:
        assert one["delivered"] == [["send_imm", SIZE, IMMEDIATE]]


@pytest.mark.parametrize("side", SIDES)
def test_a_receiver_that_is_not_ready_is_waited_for(told: Told, side: str) -> None:
    one = told[f"{side} send, buffer late"]
    data, other = ("out", "into") if side == "ours" else ("into", "out")
    assert_whole(one)
    assert set(of(one[other], "RNR NAK")) == {psns(one[data])[0]}
    if side == "ours":
        # The buffer came after 200 us, and timer code 1 asks for 10 us each time.
        assert one["counters"]["send_rnr_err"] == len(of(one[other], "RNR NAK")) == 20
    else:
        assert one["counters"]["rcvd_rnr_err"] == 1


def test_atomics(told: Told) -> None:
    one = told["atomics"]
    # 1000, plus 7; 5 where 1007 was; nothing where 1007 is no longer
    assert one["found"] == [[value, "success", value] for value in (1000, 1007, 5)]
    assert one["left"] == [5, 5]


def test_many_requests_of_both_sides_at_once(told: Told) -> None:
    """Every READ has the right bytes, every atomic was done once and told its number, WRITEs between them are in place."""
    assert_whole(told["both at once"])
    responses = of(told["both at once"]["out"], "_RESPONSE") + of(told["both at once"]["out"], "ATOMIC_ACK")
    assert len(responses) == len(set(responses)) == 8 * (2 + 3), "in order, or Soft-RoCE would ask again"
    lossy = told["both at once, lossy"]
    assert_whole(lossy)
    assert all(lost > 0 for lost in lossy["harmed"].values())


@pytest.mark.parametrize(("side", "verb"), BOTH)
def test_a_wrong_key_is_refused(told: Told, side: str, verb: str) -> None:
    one = told[f"{side} {verb}, wrong key"]
    data, other = ("out", "into") if side == "ours" else ("into", "out")
    assert one["status"].endswith("remote access error")
    assert of(one[other], "NAK, remote access error") == [psns(one[data])[0]]
    assert len(one[other]) == 1, "one refusal, then silence"
    assert one.get("timeouts", 0) == 0, "and who was refused does not ask again"
