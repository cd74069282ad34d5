"""Lab 9: verdicts of given runs, and an exact run to set them against."""

from __future__ import annotations

from emulator.lab.runs import LabRun, NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work

WORDS = ("trusted", "care", "untrusted")


def check(work: Work, sheet: Sheet) -> None:
    def given(name: str) -> LabRun:
        return work.named(name)

    def exact() -> LabRun:
        return work.run("exact.yaml", clock="virtual")

    def tdf(name: str) -> float:
        return float(given(name).summary["clock"]["tdf"])

    def error(name: str) -> float:
        """How far a completion time is from the exact one, in percent of that."""
        return abs(given(name).time_us / exact().time_us - 1) * 100

    def failed(name: str) -> list[str]:
        return [c["id"] for c in given(name).verdict["checks"] if c["status"] == "fail"]

    def complained(name: str) -> list[str]:
        """What stands beneath the verdict, where failures and warnings look alike."""
        return [c["id"] for c in given(name).verdict["checks"] if c["status"] in ("fail", "warn")]

    def names_a_check(key: str, name: str) -> tuple[bool, str]:
        if not work.answers.given(key):
            return False, f"no answer yet to `{key}`"
        found, word = complained(name), work.answers.text(key).upper()
        return word in found, f"{word}: beneath the verdict of given/{name} stand {', '.join(found) or 'no checks'}"

    def quotable() -> list[str]:
        return [name for name in "abc" if given(name).verdict["word"] != "untrusted"]

    def pairs() -> tuple[LabRun, LabRun]:
        how = "run exact.yaml twice, the second time beside the busy program"
        like = exact().setup
        found = work.all("exact.yaml", how, lambda r: r.setup["clock"] == "virtual" and r.setup == like)
        if len(found) < 2:
            raise NoSuchRun(f"there is one run of exact.yaml with these settings: {how}")
        return found[-2], found[-1]

    def equal() -> bool:
        first, second = pairs()
        return (first.path / "flows.parquet").read_bytes() == (second.path / "flows.parquet").read_bytes()

    sheet.prediction(
        "predict_error", "Predicted: error of a busy machine", lambda: error("c"), low=0, high=10_000, unit="%"
    )
    for name in "abc":
        sheet.choice(
            f"word_{name}", f"The verdict of given/{name}",
            {word: lambda word=word, name=name: given(name).verdict["word"] == word for word in WORDS},  # type: ignore[misc]
            because=lambda name=name: f"given/{name} says {given(name).verdict['word']}",  # type: ignore[misc]
        )  # fmt: skip
    sheet.number("tdf_a", "The factor of given/a", lambda: tdf("a"), tolerance=0, look="line two of its summary: TDF")
    sheet.number(
        "wall_a", "Wall time of its traffic", lambda: given("a").time_us * tdf("a") / 1e3, unit="ms",
        look="completion in fabric time, times the factor",
    )  # fmt: skip
    sheet.fact("check_b", "A check that complained in given/b", lambda: names_a_check("check_b", "b"))
    sheet.fact("check_c", "A check that complained in given/c", lambda: names_a_check("check_c", "c"))
    sheet.number(
        "time_exact", "Completion on the virtual clock", lambda: exact().time_us, unit="us", look="`completion`"
    )
    for name in "ab":
        sheet.number(
            f"error_{name}", f"Error of given/{name}", lambda name=name: error(name), unit="%", slack=1.0, tolerance=0.1,  # type: ignore[misc]
            look="both completion times: the difference over the exact one",
        )  # fmt: skip
    for name in "bc":
        sheet.choice(
            f"cause_{name}",
            f"What went wrong in given/{name}",
            {
                "slowed_too_little": lambda name=name: tdf(name) < tdf("a") / 2,  # type: ignore[misc]
                "machine_busy": lambda name=name: tdf(name) >= tdf("a") / 2 and "F8" in failed(name),  # type: ignore[misc]
            },
            because=lambda name=name: (  # type: ignore[misc]
                f"given/{name} was slowed {tdf(name):.0f} times, given/a {tdf('a'):.0f} times; failed: {', '.join(failed(name))}"
            ),
            points=2,
        )
    sheet.choice(
        "quote",
        "Which may be quoted",
        {
            **{name: lambda name=name: quotable() == [name] for name in "abc"},  # type: ignore[misc]
            "none": lambda: not quotable(),
        },
        because=lambda: "; ".join(f"{name} says {given(name).verdict['word']}" for name in "abc"),
    )
    sheet.choice(
        "same_bytes",
        "The exact run beside a busy program",
        {"yes": equal, "no": lambda: not equal()},
        because=lambda: (
            f"the flows of {pairs()[0].name} and {pairs()[1].name} are {'equal' if equal() else 'different'}"
        ),
    )
