"""What a release of noise drawn once is compared with: raw records that are read in every step, each time under noise
of their own, which is what AdLM's program does.

    python -m bench.papers.every_step          the table of docs/errata/adlm.md, from bench/results
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from airlock.compare.comparison import FRESH, UNIT_PIXELS
from bench.papers.pcdbn import same

READING = f", {FRESH}"
STEPS_AN_EPOCH, LEAST_EPOCHS = 33, 10
PAGE = Path(__file__).parents[2] / "docs/errata/adlm.md"
MARKS = "<!-- every step -->", "<!-- end of every step -->"
REASON = "raw records and labels are read in every step, under noise that a batch shares"


@dataclass(frozen=True)
class FreshNoise:
    """In the place of released inputs: whatever rows are asked for together share one noise vector, as a batch does
    in the program. It is a function of the rows, whose order is another in every step, so that a training that was
    stopped draws the same when it goes on.

    Attributes:
        records: (n, d), integers on the grid.
        scales: of each column, on the same grid.
        name: of the cell: another one draws other noise.
    """

    records: NDArray[np.int64]
    scales: NDArray[np.float64]
    name: str

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        digest = sha256(self.name.encode() + np.ascontiguousarray(rows).tobytes()).digest()
        drawn = np.random.default_rng(int.from_bytes(digest, "big")).laplace(0.0, self.scales)
        noisy: NDArray[np.int64] = self.records[rows] + np.rint(drawn).astype(np.int64)
        return noisy


def unperturbed(tensors: dict[str, Any], images: NDArray[np.uint8], grid: int, name: str) -> dict[str, Any]:
    """The tensors of a release, with its records as they were and its noise drawn at each reading."""
    records = images.reshape(len(images), -1).astype(np.int64)
    return {**tensors, "inputs": FreshNoise(records, tensors["scales"] * grid, name)}


class Compared(NamedTuple):
    """Accuracy after so many steps, with noise drawn `once`, and with raw records read in every step.

    Attributes:
        unit: whether pixels were in [0, 1], which the program's are not.
    """

    unit: bool
    steps: int
    claimed: float
    once: float
    fresh: float


def compared() -> list[Compared]:
    """The ablations' few steps, then those that both trainings of the program were judged after."""
    from bench.papers import adlm_ablations, adlm_program

    once, fresh = (adlm_ablations.VARIANTS[place].name for place in (0, 1))
    few = {
        (row["steps"], row["claimed"], row["variant"]): row["accuracy"]
        for row in json.loads(adlm_ablations.RESULTS.read_text())["ablations"]
    }
    found = [
        Compared(False, steps, claimed, value, few[steps, claimed, fresh])
        for (steps, claimed, name), value in few.items()
        if name == once and (steps, claimed, fresh) in few
    ]
    released = adlm_program.kept_rows(adlm_program.ROWS)
    for row in adlm_program.kept_rows(adlm_program.EVERY_STEP):
        alone = next(
            one for one in released if same(one, {**row, "reading": row["reading"].removesuffix(READING)})
        )
        curves = alone["curves"]["batch"], row["curves"]["batch"]
        for epoch in sorted(curves[0].keys() & curves[1].keys(), key=int):
            if int(epoch) >= LEAST_EPOCHS:
                steps = int(epoch) * STEPS_AN_EPOCH
                unit = UNIT_PIXELS in row["reading"]
                found.append(Compared(unit, steps, row["claimed"], *(curve[epoch] for curve in curves)))
    return sorted(found)


def table() -> str:
    """Of docs/errata/adlm.md."""
    lines = [
        "| steps | claimed | drawn once, trained from it alone, % | raw records read in every step, % | worth |",
        "|---|---|---|---|---|",
    ]
    for one in compared():
        worth = f"{round(100 * (one.fresh - one.once), 1) + 0.0:+.1f}"
        claimed = f"{one.claimed:g}" + ", in [0, 1]" * one.unit
        lines.append(
            f"| {one.steps:,} | {claimed} | {100 * one.once:.1f} | {100 * one.fresh:.1f} | {worth} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Put the table on its page."""
    before, rest = PAGE.read_text().split(MARKS[0])
    PAGE.write_text(before + MARKS[0] + "\n" + table() + "\n" + MARKS[1] + rest.split(MARKS[1])[1])


if __name__ == "__main__":
    main()
