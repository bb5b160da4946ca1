"""Attacks on the release of every sound mechanism, through sealed records and the stages' own code;
resumable.

    python -m bench.attacks                     what is missing, to bench/results/attacks.json
    python -m bench.attacks --only dp-mac       one of them
    python -m bench.attacks --again             all of it once more
    python -m bench.attacks --exact             the distance of exact sums alone, beside what was counted: seconds
    python -m bench.attacks --table             the table of docs/attacks.md

Every cell has at least 3,000 counted runs a side; where a run is quick, as many more (up to 10,000) as
`--seconds` of one core allow. Then `airlock compare --markdown docs/papers.md --save
stages/open/report/published.csv` shows the new figures.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]

from airlock.attack import attack, end_to_end, neighbours
from airlock.attack.replay import Distance
from airlock.attack.targets import Finding
from airlock.commands.attack import _add
from airlock.models.features.choice import clip_for
from airlock.models.papers import filters
from airlock.params import Params
from airlock.privacy.plan import Facts
from stages import attack_data
from stages.attack import proven_together, rehearse, target_of

RESULTS = Path(__file__).parent / "results/attacks.json"
EPSILONS = (0.5, 1.0, 3.0)
# Every mechanism with a finite proof, the two other releases, and the options under which a mechanism has one.
# The second dp-sgd takes each record with probability 1/2: who is in the sample is hidden from the attack.
# Options of `evaluation` are those of the section `evaluate`.
SOUND_MECHANISMS: dict[str, tuple[str, dict[str, Any]]] = {
    "coefficients": ("coefficients", {}),
    "coefficients-iterated": ("coefficients-iterated", {}),
    "coefficients-iterated, hybrid map": ("coefficients-iterated", {"clip": clip_for(2)}),
    "inputs": ("inputs", {}),
    "inputs, mixed columns": ("inputs", {"bins": 3, "label_weight": 2.0}),
    "bounds": ("bounds", {}),
    "relevance": ("relevance", {}),
    "evaluation": ("evaluation", {}),
    "evaluation, all measures": ("evaluation", {"measures": "all"}),
    "neuron-allocation": ("neuron-allocation", {}),
    "behaviour": ("behaviour", {"rows": "window"}),
    "dp-sgd": ("dp-sgd", {}),
    "dp-sgd, sampled": ("dp-sgd", {"batch": 3, "epochs": 0.5}),
    "ellipsoid-noise": ("ellipsoid-noise", {}),
    "optimized-noise": ("optimized-noise", {"calibration": "published"}),
    "dp-mac": ("dp-mac", {}),
    "adlm": ("adlm", {"preset": "sound"}),
    "ilm": ("ilm", {"preset": "sound"}),
    "patch-moments": ("patch-moments", {}),
    "pcdbn": ("pcdbn", {"preset": "repaired"}),
}
FACTS = {
    "coefficients-iterated, hybrid map": attack_data.MIXED_CROWD,
    "inputs, mixed columns": attack_data.MIXED,
    "bounds": attack_data.MIXED,
}
"""Records of other kinds than a mechanism is attacked on otherwise."""
# What is learned is not counted: with slow releases, less is learned.
EFFORT = end_to_end.Effort(spread=20, direction=2, choice=15)
LEAST, MOST = 3000, 10_000
CONFIDENCE = 0.95
# Filters of pCDBN are post-processing of released coefficients: two steps of it instead of 200.
FILTER_STEPS = 2


def asked(label: str, epsilon: float, relation: str = "zero-out") -> tuple[str, Params, Facts]:
    """Which stage makes it, with which parameters, of records of which kind."""
    name, options = SOUND_MECHANISMS[label]
    what = name if name in attack.STAGES else "release"
    release: dict[str, Any] = {"epsilon": epsilon, "neighbours": relation}
    release |= {"mechanism": name, "options": options} if what == "release" else {}
    evaluate = {"epsilon": epsilon, **(options if what == "evaluation" else {})}
    params, facts = attack_data.of(what, Params.model_validate({"release": release, "evaluate": evaluate}))
    return what, params, FACTS.get(label, facts)


@dataclass(frozen=True)
class Cell:
    """One release at one epsilon, as it is attacked."""

    label: str
    epsilon: float

    @property
    def mechanism(self) -> str:
        return SOUND_MECHANISMS[self.label][0]

    @property
    def what(self) -> str:
        """Which stage makes it."""
        return self.mechanism if self.mechanism in attack.STAGES else "release"

    def settings(self) -> tuple[Params, Facts, list[neighbours.Pair]]:
        """Parameters, public facts, and the neighbours that are tried."""
        _, params, facts = asked(self.label, self.epsilon)
        return params, facts, list(neighbours.pairs(facts, "zero-out"))[::3]

    def entry(self, finding: Mapping[str, Any]) -> dict[str, Any]:
        """In the form that `airlock attack --save` writes."""
        return {
            "kind": "attack",
            "mechanism": self.mechanism,
            "epsilon": self.epsilon,
            "neighbours": "zero-out",
            "options": SOUND_MECHANISMS[self.label][1],
            "noise_factor": 1.0,
            "findings": [finding],
        }


def measure(cell: Cell, seconds: float, least: int = LEAST) -> dict[str, Any]:
    """Everything: neighbours, score, counted runs."""
    asked, facts, pairs = cell.settings()
    target = target_of(cell.what, asked, seed=0, facts=facts, pairs=pairs, effort=EFFORT)
    how: dict[str, Any] = {"seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
    start = time.process_time()
    target.law.score(None, 10, True)  # type: ignore[arg-type]  # how long a run takes
    trials = int(min(MOST, max(least, seconds * 10 / (time.process_time() - start) / 2)))
    bounds = 1 if target.law.family is None else 2
    found = attack.attack(target, trials=trials, confidence=1 - (1 - CONFIDENCE) / bounds, **how).to_json()
    return cell.entry({**found, "reached": farther(cell, found["reached"])})


def farther(cell: Cell, reached: float | None) -> float | None:
    """The larger of what is reached now and what was before: each is the least of a few histories, and where
    later sums depend on earlier noise, another search has met others.
    """
    before = cells().get((cell.label, cell.epsilon), {}).get("reached")
    return max((one for one in (reached, before) if one is not None), default=None)


def reach(cell: Cell) -> dict[str, Any]:
    """The distance of exact sums on the worst of the neighbours; no run is counted."""
    asked, facts, pairs = cell.settings()
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = rehearse(cell.what, asked, facts, Path(folder))
        plans = rehearsal.plans()
        laboratory = end_to_end.Laboratory(rehearsal, 0)
        likely = neighbours.ranked(pairs, lambda pair: laboratory.reach(pair).size)[: end_to_end.FINALISTS]
        found = [(laboratory.distance(pair) or Distance(0.0), pair) for pair in likely]
    distance, pair = max(found, key=lambda one: one[0].size)
    delta = plans[-1].proven.delta
    proven, _ = proven_together(plans, delta, "zero-out")
    reached = farther(cell, distance.epsilon(delta) if distance.size else None)
    finding = Finding(
        "the release itself", pair.name, 0.0, None, delta, CONFIDENCE, 0, 0, 0, 0.0, "present", 0, "numpy",
        kind="attack", reached=reached,
    )  # fmt: skip
    word = attack.verdict(0.0, reached or 0.0, None, proven)
    counted = cells().get((cell.label, cell.epsilon), {})
    return cell.entry(
        {
            **finding.to_json(),
            "claimed": None,
            **counted,
            "proven": proven,
            "verdict": word,
            "reached": reached,
        }
    )


def cells() -> dict[tuple[str, float], dict[str, Any]]:
    """What the file has already: the finding of each label and epsilon."""
    entries = json.loads(RESULTS.read_text())["attacks"] if RESULTS.exists() else []
    return {
        (label, one["epsilon"]): one["findings"][0]
        for one in entries
        for label, (name, options) in SOUND_MECHANISMS.items()
        if one.get("kind") == "attack" and (one["mechanism"], one["options"]) == (name, options)
    }


def known(least: int = LEAST) -> set[tuple[str, float]]:
    """Which cells need not be measured: those with enough runs."""
    return {cell for cell, finding in cells().items() if finding["trials"] >= least}


def table() -> str:
    """The results as the table of docs/attacks.md: parts of the proven epsilon, at each asked one."""
    found = cells()
    lines = [
        "| release | epsilon | proven | reached / proven | attacked / proven | runs a side |",
        "|---|---|---|---|---|---|",
    ]
    for label in SOUND_MECHANISMS:
        for epsilon in EPSILONS:
            if cell := found.get((label, epsilon)):
                best, proven = max(cell["epsilon"], cell["by_law"] or 0.0), cell["proven"]
                reached = "-" if cell["reached"] is None else f"{cell['reached'] / proven:.3f}"
                counted = f"{best / proven:.2f}" if cell["trials"] else "-"
                figures = f"{proven:.3g} | {reached} | {counted} | {cell['trials'] or '-'}"
                lines.append(f"| {label} | {epsilon:g} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, one cell at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SOUND_MECHANISMS, help="one mechanism")
    parser.add_argument("--epsilon", type=float, help="one epsilon, also one that is not in the table")
    parser.add_argument("--again", action="store_true", help="measure what is known once more")
    parser.add_argument("--exact", action="store_true", help="count no runs: exact sums only")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of one core, for the counted runs of a cell"
    )
    parser.add_argument(
        "--least", type=int, default=LEAST, help="counted runs a side at least (fewer for a first look)"
    )
    parser.add_argument(
        "--stop-after", type=float, default=float("inf"), help="begin no cell after so many seconds"
    )
    parser.add_argument("--table", action="store_true", help="print what is known as a table")
    wanted = parser.parse_args()
    if wanted.table:
        print(table())
        return
    # One thread is asked for anyway (OMP_NUM_THREADS): looking for thread pools takes as long as a release.
    if os.environ.get("OMP_NUM_THREADS") == "1":
        vars(threadpoolctl)["threadpool_limits"] = lambda *given, **how: contextlib.nullcontext()
    vars(filters)["diverge_freely"] = functools.partial(filters.diverge_freely, steps=FILTER_STEPS)
    begun = time.monotonic()
    for name in [wanted.only] if wanted.only else SOUND_MECHANISMS:
        for epsilon in [wanted.epsilon] if wanted.epsilon else EPSILONS:
            late = time.monotonic() - begun > wanted.stop_after
            there = set[tuple[str, float]]() if wanted.exact else known(wanted.least)
            if not late and (wanted.again or (name, epsilon) not in there):
                cell = Cell(name, epsilon)
                entry = reach(cell) if wanted.exact else measure(cell, wanted.seconds, wanted.least)
                _add(RESULTS, entry)
                found = entry["findings"][0]
                best = max(found["epsilon"], found["by_law"] or 0.0)
                print(
                    f"{name} {epsilon}: attacked {best:.3f}, reached {found['reached']} of {found['proven']} "
                    f"({found['trials']} runs a side)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
