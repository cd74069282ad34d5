"""Makes the runs that lab 9 brings along, with root and on a quiet machine: `python -m tests.labs.given`.

a: slowed as much as this machine needs; b: slowed too little by a factor of 60; c: as a, beside a busy program for each core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.commands import ROOT, environment

TABLES = ("flows", "queues", "histogram", "rates")
KEPT = ("manifest.json", "summary.json", "summary.txt", "events.jsonl", *(f"{table}.parquet" for table in TABLES))
LAB = ROOT / "labs" / "09-believe"


def run(name: str, folder: Path, *flags: str) -> dict[str, object]:
    """One run on the real clock, its tables left in given/NAME; the clock of its summary."""
    subprocess.run(
        ["fabriclab", "run", "exact.yaml", "--clock", "real", "--out", str(folder / name), "-q", *flags],
        cwd=LAB, env=environment(), check=False, timeout=600, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    made = next((folder / name).iterdir())
    target = LAB / "given" / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in KEPT:
        shutil.copyfile(made / file, target / file)
    manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
    manifest["command"] = [
        word for word in manifest["command"] if not word.startswith(str(folder)) and word not in ("--out", "-q")
    ]
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    summary = json.loads((target / "summary.json").read_text(encoding="utf-8"))
    print(name, summary["clock"], summary["theory"], summary["verdict"]["word"], summary["verdict"]["reasons"])
    clock: dict[str, object] = summary["clock"]
    return clock


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fabriclab-given-"))
    try:
        factor = int(str(run("a", folder)["tdf"]))
        run("b", folder, "--set", f"tdf={max(1, factor // 60)}")
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
        try:
            run("c", folder, "--set", f"tdf={factor}")
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
