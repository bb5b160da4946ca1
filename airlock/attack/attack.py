"""`airlock attack`: what can be attacked in a mechanism, by what noise, and what the findings mean."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from airlock.attack import laws, targets
from airlock.attack.samplers import NumpySampler, OwnSampler, Sampler
from airlock.attack.targets import Finding, Target
from airlock.errors import InputError, ParamsError
from airlock.params import Params, check
from airlock.privacy import events
from airlock.privacy.plan import Facts
from airlock.records.schema import Schema

# More draws than this a run and the release's own generator would take minutes where NumPy's takes one.
OWN_DRAWS = 64
LIKE = {
    name: Facts(name, True, "image", records, 0, shape, tuple("0123456789"), schema="", fingerprint="")
    for name, records, shape in (
        ("mnist", 60_000, (28, 28, 1)),
        ("usps", 5_000, (16, 16, 1)),
        ("cifar10", 50_000, (32, 32, 3)),
    )
}


@dataclass(frozen=True)
class Verdict:
    """One target, attacked."""

    target: Target
    finding: Finding

    @property
    def over_claim(self) -> bool:
        return self.target.claimed is not None and self.finding.epsilon > self.target.claimed

    @property
    def over_proof(self) -> bool:
        return self.finding.best > self.target.proven

    @property
    def word(self) -> str:
        """The verdict in a few words."""
        if self.over_proof:
            return "refutes the proof"
        if self.over_claim:
            return "refutes the claim"
        return "nothing is proven" if np.isinf(self.target.proven) else "within the proof"

    def to_json(self) -> dict[str, Any]:
        """For --json and for bench/results; infinity is a word there."""
        proven = "infinity" if np.isinf(self.target.proven) else self.target.proven
        return {
            **self.finding.to_json(),
            "claimed": self.target.claimed,
            "proven": proven,
            "verdict": self.word,
        }


def settle(
    params: Params, name: str | None, *, epsilon: float | None, neighbours: str | None, options: list[str]
) -> Params:
    """params.yaml with what the command line changes; another mechanism starts with no options of its own."""
    release = params.release.model_dump()
    if name and name != release["mechanism"]:
        release |= {"mechanism": name, "options": {}}
    release["options"] = {**release["options"], **dict(_option(one) for one in options)}
    release |= {"epsilon": epsilon} if epsilon is not None else {}
    release |= {"neighbours": neighbours} if neighbours else {}
    return check(Params, {**params.model_dump(), "release": release}, "airlock attack")


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ParamsError(f"--option {text} is not KEY=VALUE, for example --option preset=authors-code")
    return name, yaml.safe_load(value)


def facts_of(workspace: Path, like: str) -> Facts:
    """Public facts: of the sealed records here, or of a data set of the papers (auto: MNIST where nothing is sealed)."""
    path = workspace / "data/sealed/meta.json"
    _one_of("--like", like, ("auto", "sealed", *LIKE))
    if like in LIKE or (like == "auto" and not path.exists()):
        return LIKE.get(like, LIKE["mnist"])
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
    """What the mechanism itself names; otherwise the worst case of the event that it is charged for."""
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
) -> Verdict:
    """Attack one target."""
    drawn = sampler_of(sampler, target, seed)
    return Verdict(
        target,
        targets.measure(
            target.law, drawn, trials=trials, delta=target.delta, confidence=confidence, tick=tick
        ),
    )


def given(module: Any, params: Params, schema: Schema, file: Path, *, seed: int, runs: int) -> Target:
    """The release itself on the records of a file that follows the data set's schema; the last record is the one in question."""
    from airlock.records.encoding import encode, encoded_shape
    from airlock.records.tables import open_table

    parts = [
        encode(batch, schema)
        for batch in open_table(file, header=schema.header).batches([*schema.sources, schema.label.column])
    ]
    records, labels = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    shape, names = tuple(encoded_shape(schema)), tuple(str(name) for name in schema.label.classes)
    facts = Facts(
        "attack",
        True,
        schema.kind,
        len(labels),
        0,
        shape,
        names,
        schema="",
        fingerprint="",
        features=schema.features,
    )
    return black_box(module, params, facts, records, labels, seed=seed, runs=runs)


def black_box(
    module: Any, params: Params, facts: Facts, records: Any, labels: Any, *, seed: int, runs: int
) -> Target:
    """The mechanism itself, run again and again on given records and on the same records with the last one null.

    The score is learned (privacy/distinguishers.py). Every run has a key of its own, derived from the seed.
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
            tensors, _ = module.make(params, facts, InMemory(batches[present]), key=key, release_id="attack")
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


class InMemory:
    """Batches in memory that read like a sealed file."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches, self.chunks = batches, len(batches)

    def read(self, index: int) -> Any:
        return self._batches[index]

    def __iter__(self) -> Any:
        return iter(self._batches)
