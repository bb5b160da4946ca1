"""`airlock attack`: what can be checked in a mechanism's accounting, by what noise, and what the findings of
all attacks mean.

The attack on the release itself is in attack/end_to_end.py, and behind the wall in stages/attack.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airlock.attack import laws, targets
from airlock.attack.samplers import NumpySampler, OwnSampler, Sampler
from airlock.attack.targets import Finding, Target
from airlock.errors import InputError, ParamsError, SchemaError
from airlock.models.features.choice import COLOURS, LEARNED, settle_mechanism
from airlock.params import Params, check, load_params, parse_value
from airlock.privacy import events
from airlock.privacy.plan import Facts
from airlock.records.schema_file import load_schema

# More draws than this a run and the release's own generator would take minutes where NumPy's takes one.
OWN_DRAWS = 64
STAGES = ("relevance", "evaluation", "synthetic")
"""Releases besides the mechanism's own, which may be named in its place."""
FACTS_LIKE = {
    name: Facts(name, True, "image", records, 0, shape, tuple("0123456789"), schema="", fingerprint="")
    for name, records, shape in (
        ("mnist", 60_000, (28, 28, 1)),
        ("usps", 5_000, (16, 16, 1)),
        ("cifar10", 50_000, (32, 32, 3)),
    )
}


@dataclass(frozen=True)
class Conclusion:
    """One target, attacked."""

    target: Target
    finding: Finding

    @property
    def word(self) -> str:
        """The verdict in a few words."""
        return verdict(self.finding.epsilon, self.finding.best, self.target.claimed, self.target.proven)

    def to_json(self) -> dict[str, Any]:
        """For --json and for bench/results; infinity is a word there."""
        proven = "infinity" if np.isinf(self.target.proven) else self.target.proven
        return {
            **self.finding.to_json(),
            "claimed": self.target.claimed,
            "proven": proven,
            "verdict": self.word,
        }


def verdict(free: float, best: float, claimed: float | None, proven: float) -> str:
    """A few words. A refuted proof comes first: whoever reads of a refuted claim must not miss it.

    Args:
        free: lower bound free of assumptions, which a paper's claim is held against.
        best: the largest lower bound, which the proof, whose law we know, is held against.
        claimed, proven: what the paper and the proof say.
    """
    if best > proven:
        return "refutes the proof"
    if claimed is not None and free > claimed:
        return "refutes the claim"
    return "nothing is proven" if np.isinf(proven) else "within the proof"


def load_settled(workspace: Path) -> Params:
    """params.yaml, with the mechanism that `auto` means for its data set (for a table where there is none)."""
    params = load_params(workspace / "params.yaml")
    try:
        schema = load_schema(workspace / f"data/schemas/{params.dataset}.yaml", draft=True)
    except SchemaError:
        return settle_mechanism(params, "tabular")
    colour = (
        schema.image is not None and schema.image.channels == COLOURS and schema.features in (None, LEARNED)
    )
    return settle_mechanism(params, schema.kind, colour=colour)


def settle(
    params: Params, name: str | None, *, epsilon: float | None, neighbours: str | None, options: list[str]
) -> Params:
    """params.yaml with what the command line changes; another mechanism starts with no options of its own."""
    release = params.release.model_dump()
    if name == "evaluation" and epsilon is not None:
        evaluate, epsilon = {**params.evaluate.model_dump(), "epsilon": epsilon}, None
        params = check(Params, {**params.model_dump(), "evaluate": evaluate}, "airlock attack")
    if name and name not in STAGES and name != release["mechanism"]:
        release |= {"mechanism": name, "options": {}}
    release["options"] = {**release["options"], **dict(_option(one) for one in options)}
    release |= {"epsilon": epsilon} if epsilon is not None else {}
    release |= {"neighbours": neighbours} if neighbours else {}
    return check(Params, {**params.model_dump(), "release": release}, "airlock attack")


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ParamsError(f"--option {text} is not KEY=VALUE, for example --option preset=authors-code")
    return name, parse_value(value, f"--option {text}")


def facts_of(workspace: Path, like: str) -> Facts:
    """Public facts: of the sealed records here, or of a data set of the papers (auto: MNIST where nothing is
    sealed).
    """
    path = workspace / "data/sealed/meta.json"
    _one_of("--like", like, ("auto", "sealed", *FACTS_LIKE))
    if like in FACTS_LIKE or (like == "auto" and not path.exists()):
        return FACTS_LIKE.get(like, FACTS_LIKE["mnist"])
    from airlock.inside.sealed import facts_of as read

    try:
        return read(json.loads(path.read_text()))
    except FileNotFoundError:
        raise InputError(
            "data/sealed/meta.json is missing: run `dvc repro ingest`, or give --like mnist"
        ) from None


def targets_of(
    module: Any,
    params: Params,
    facts: Facts,
    *,
    factor: float = 1.0,
    release: Mapping[str, Any] | None = None,
) -> list[Target]:
    """Accounting check: what the mechanism itself names; otherwise the worst case of the event that it is
    charged for.
    """
    if hasattr(module, "targets"):
        named: list[Target] = module.targets(params, facts, factor=factor, release=release)
        return named
    plan = module.plan(params, facts)
    if plan.proven.event is None:
        raise InputError(f"'{plan.mechanism}' has no known law to attack: {plan.proven.reason}")
    event = events.from_json(plan.proven.event)
    law = laws.of_event(event, name="all noisy sums", neighbours=plan.proven.neighbours, factor=factor)
    claimed = plan.claimed.epsilon if plan.claimed else None
    return [Target(law, claimed, plan.proven.epsilon, plan.proven.delta)]


def check_sampler(wanted: str) -> str:
    """A name that `sampler_of` knows."""
    _one_of("--sampler", wanted, ("auto", "airlock", "numpy"))
    return wanted


def sampler_of(wanted: str, target: Target, seed: int) -> Sampler:
    """The release's own generator where it is quick enough."""
    own = wanted == "airlock" or (wanted == "auto" and target.law.draws <= OWN_DRAWS)
    return OwnSampler(seed) if own else NumpySampler(seed)


def _one_of(option: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise InputError(f"{option} {value} is not known: use {', '.join(values[:-1])} or {values[-1]}")


def attack(
    target: Target,
    *,
    trials: int,
    confidence: float,
    seed: int,
    sampler: str,
    tick: Callable[[int, int], None],
) -> Conclusion:
    """Attack one target: a release by right guesses, a law, of which millions of draws are cheap, by rare
    events.
    """
    drawn = sampler_of(sampler, target, seed)
    how = targets.distinguish if target.law.kind == "attack" else targets.measure
    return Conclusion(
        target,
        how(target.law, drawn, trials=trials, delta=target.delta, confidence=confidence, tick=tick),
    )


def black_box(
    module: Any, params: Params, facts: Facts, records: Any, labels: Any, *, seed: int, runs: int
) -> Target:
    """The mechanism itself, run again and again on given records and on the same records with the last one
    null.

    The score is learned (attack/distinguishers.py). Every run has a key of its own, derived from the seed.
    """
    from airlock.attack import distinguishers
    from airlock.records.encoding import Encoded, pack

    calls = [0]
    plan = module.plan(params, facts)
    kept = np.arange(len(labels)) < len(labels) - 1
    x = {
        True: records,
        False: np.where(kept.reshape(-1, *[1] * (records.ndim - 1)), records, 0).astype(records.dtype),
    }
    y = {True: labels.astype(np.int32), False: np.where(kept, labels, -1).astype(np.int32)}
    batches = {
        side: [pack(Encoded(x[side], y[side], (y[side] >= 0).astype(np.uint8)))] for side in (True, False)
    }

    def observe(count: int, present: bool) -> Any:
        rows = []
        for _ in range(count):
            calls[0] += 1
            key = hashlib.sha256(f"airlock attack {seed} {calls[0]}".encode()).digest()
            tensors, _ = make(module, params, facts, InMemory(batches[present]), key)
            rows.append(
                np.concatenate(
                    [np.asarray(tensors[name], dtype=np.float64).ravel() for name in sorted(tensors)]
                )
            )
        return np.stack(rows)

    law = distinguishers.train(
        observe, runs=runs, name="the release itself", pair="given records, the last one present or null"
    )
    return Target(law, plan.claimed.epsilon if plan.claimed else None, plan.proven.epsilon, plan.proven.delta)


def make(module: Any, params: Params, facts: Facts, reader: Any, key: bytes) -> tuple[Any, Any]:
    """A mechanism's tensors and details, from a reader of any kind."""
    made: tuple[Any, Any] = module.make(params, facts, reader, key=key, release_id="attack")
    return made


class InMemory:
    """Batches in memory that read like a sealed file."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches, self.chunks = batches, len(batches)

    def read(self, index: int) -> Any:
        return self._batches[index]

    def __iter__(self) -> Any:
        return iter(self._batches)
