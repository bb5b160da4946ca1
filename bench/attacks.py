"""Attacks on the release of every sound mechanism, through sealed records and the stages' own code;
resumable.

    python -m bench.attacks                     what is missing, to bench/results/attacks.json
    python -m bench.attacks --only dp-mac       one of them
    python -m bench.attacks --again             all of it once more
    python -m bench.attacks --table             the table of docs/attacks.md

Each cell takes about `--seconds` of one core: slow releases are run less often, and their bounds are lower
for it. Then `airlock compare --markdown docs/papers.md --save stages/open/report/published.csv` shows the new
figures.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from airlock.attack import attack, end_to_end, neighbours
from airlock.commands.attack import _add
from airlock.params import Params
from stages import attack_data
from stages.attack import target_of

RESULTS = Path(__file__).parent / "results/attacks.json"
EPSILONS = (0.5, 1.0, 3.0)
# Every mechanism with a finite proof, the two other releases, and the options under which a mechanism has
# one.
SOUND_MECHANISMS: dict[str, dict[str, Any]] = {
    "coefficients": {},
    "coefficients-iterated": {},
    "relevance": {},
    "evaluation": {},
    "neuron-allocation": {},
    "behaviour": {"rows": "window"},
    "dp-sgd": {},
    "ellipsoid-noise": {},
    "optimized-noise": {},
    "dp-mac": {},
    "adlm": {"preset": "sound"},
    "ilm": {"preset": "sound"},
    "patch-moments": {"layers": [1]},
}
# What is learned is not counted: with slow releases, less is learned.
EFFORT = end_to_end.Effort(spread=20, direction=2, choice=15)
SLOW_MECHANISMS = ("patch-moments",)
CONFIDENCE = 0.95


def measure(name: str, epsilon: float, seconds: float) -> dict[str, Any]:
    """One cell, in the form that `airlock attack --save` writes."""
    what = name if name in attack.STAGES else "release"
    release: dict[str, Any] = {"epsilon": epsilon, "options": SOUND_MECHANISMS[name]}
    release |= {"mechanism": name} if what == "release" else {}
    params = Params.model_validate({"release": release, "evaluate": {"epsilon": epsilon}})
    asked, facts = attack_data.of(what, params)
    # Slow releases are run less often: for learning too.
    pairs = list(neighbours.pairs(facts, "zero-out"))[:: 12 if name in SLOW_MECHANISMS else 3]
    target = target_of(what, asked, seed=0, facts=facts, pairs=pairs, effort=EFFORT)
    how: dict[str, Any] = {"seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
    start = time.process_time()
    target.law.score(None, 10, True)  # type: ignore[arg-type]  # how long a run takes
    trials = int(min(3000, max(40, seconds * 10 / (time.process_time() - start) / 2)))
    bounds = 1 if target.law.family is None else 2
    found = attack.attack(target, trials=trials, confidence=1 - (1 - CONFIDENCE) / bounds, **how)
    return {
        "kind": "attack",
        "mechanism": name,
        "epsilon": epsilon,
        "neighbours": "zero-out",
        "options": SOUND_MECHANISMS[name],
        "noise_factor": 1.0,
        "findings": [found.to_json()],
    }


def known() -> set[tuple[str, float]]:
    """What the file has already."""
    entries = json.loads(RESULTS.read_text())["attacks"] if RESULTS.exists() else []
    return {(one["mechanism"], one["epsilon"]) for one in entries if one.get("kind") == "attack"}


def table() -> str:
    """The results as the table of docs/attacks.md: parts of the proven epsilon, at each asked one."""
    entries = json.loads(RESULTS.read_text())["attacks"]
    found = {
        (one["mechanism"], one["epsilon"]): one["findings"][0]
        for one in entries
        if one.get("kind") == "attack"
    }
    lines = [
        "| release | epsilon | proven | reached / proven | attacked / proven | runs a side |",
        "|---|---|---|---|---|---|",
    ]
    for name in SOUND_MECHANISMS:
        for epsilon in EPSILONS:
            if cell := found.get((name, epsilon)):
                best, proven = max(cell["epsilon"], cell["by_law"] or 0.0), cell["proven"]
                reached = "-" if cell["reached"] is None else f"{cell['reached'] / proven:.3f}"
                figures = f"{proven:.3g} | {reached} | {best / proven:.2f} | {cell['trials']}"
                lines.append(f"| {name} | {epsilon:g} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, one cell at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SOUND_MECHANISMS, help="one mechanism")
    parser.add_argument("--again", action="store_true", help="measure what is known once more")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of one core, for the counted runs of a cell"
    )
    parser.add_argument("--table", action="store_true", help="print what is known as a table")
    wanted = parser.parse_args()
    if wanted.table:
        print(table())
        return
    for name in [wanted.only] if wanted.only else SOUND_MECHANISMS:
        for epsilon in EPSILONS:
            if wanted.again or (name, epsilon) not in known():
                cell = measure(name, epsilon, wanted.seconds)
                _add(RESULTS, cell)
                found = cell["findings"][0]
                best = max(found["epsilon"], found["by_law"] or 0.0)
                print(
                    f"{name} {epsilon}: attacked {best:.3f}, reached {found['reached']} of {found['proven']} "
                    f"({found['trials']} runs a side)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
