"""Make the records of `airlock demo`: SIMULATED patients, no real person's.

Run from the project's top folder: python docs/demo_records.py
"""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

import numpy as np

FOLDER = Path("airlock/workspaces/demo")
ROWS, NEW = 2000, 8
DICTIONARY = (
    ("name", "low", "high", "why"),
    ("admitted", "2020-01-01", "2026-12-31", "the years of the study"),
    ("age", "0", "120", "human life"),
    ("bmi", "10", "70", "scales of the ward"),
    ("crp", "0", "500", "range of the instrument, mg/l"),
    ("stay_days", "0", "60", "longer stays are another study"),
)


def main() -> None:
    """Write patients.csv, new.csv and dictionary.csv."""
    draw = np.random.default_rng(24)
    patients = [_patient(draw, number) for number in range(ROWS + NEW)]
    columns = list(patients[0])
    _write("patients.csv", columns, patients[:ROWS])
    _write("new.csv", columns[:-1], patients[ROWS:])
    with (FOLDER / "dictionary.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(DICTIONARY)


def _patient(draw: np.random.Generator, number: int) -> dict[str, str]:
    age, crp = draw.integers(18, 96), draw.gamma(1.5, 30)
    stay, acute = min(int(draw.gamma(2, 4)), 60), bool(draw.random() < 0.4)
    risk = 0.06 * (age - 60) + 0.02 * (crp - 45) + 0.12 * (stay - 8) + 1.2 * acute - 0.9
    day = datetime.date(2022, 1, 1) + datetime.timedelta(int(draw.integers(0, 1200)))
    return {
        "patient_id": f"P{100000 + number}",
        "admitted": day.isoformat(),
        "age": str(age),
        "bmi": "" if draw.random() < 0.05 else f"{draw.normal(26, 4):.1f}",
        "crp": f"{crp:.1f}",
        "stay_days": str(stay),
        "ward": ("acute" if acute else ("surgery", "medicine")[int(draw.random() < 0.6)]),
        "readmitted": "yes" if draw.random() < 1 / (1 + np.exp(-1.6 * risk)) else "no",
    }


def _write(name: str, columns: list[str], rows: list[dict[str, str]]) -> None:
    with (FOLDER / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
