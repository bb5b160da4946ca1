"""The pipeline in one process, for comparisons: the same stage functions as `airlock run`, in a workspace and
home of their own.

Only public data sets are used. Every release is reserved in and committed to the scratch ledger of that home,
so that a comparison never touches a population's real budget; the wall and DVC are left out, because what is
measured is the mechanism.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airlock.datasets import catalog
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.inside.sealed import SealedReader, seal_contexts
from airlock.ledger import Ledger
from airlock.owner import registry
from airlock.owner.home import project
from airlock.owner.keys import Keyring
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records import handles
from airlock.storage import load_model, load_tensors, save_tensors
from stages.mechanisms import Whole, mechanism
from stages.open import evaluate, train
from stages.release import perturb, relevance
from stages.sensitive import ingest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class PipelineResult:
    """One release, trained from and judged."""

    accuracy: float
    seconds: float
    passes: int
    proven: float
    reference: float | None


class Pipeline:
    """One data set in a workspace below `folder`."""

    def __init__(self, folder: Path, dataset: str, *, identical_weights: bool = False) -> None:
        self.identical_weights = identical_weights
        os.environ["AIRLOCK_HOME"] = str(folder / "home")
        self.workspace, self.dataset = folder / "work", dataset
        if not self.workspace.exists():
            shutil.copytree(ROOT / "data/schemas", self.workspace / "data/schemas")
            shutil.copy2(ROOT / "data/project.json", self.workspace / "data/project.json")
        self.project = project(self.workspace)
        catalog.fetch(self.project, self.workspace, dataset)
        self.keyring = Keyring.load(self.project)
        self.ledger = Ledger.open(self.project.scratch_url, create=False)
        # A sweep asks for more than a user's cap on public data. This home is the bench's own, so the bench
        # is the owner who decides.
        self.ledger.set_cap(
            dataset, 1e6, 1e-5, who="bench", why="repeated comparison on public data, in a home of its own"
        )
        self.facts: Facts

    def params(self, **sections: Any) -> Params:
        """params.yaml with the data set's name and changes."""
        return Params.model_validate({"dataset": self.dataset, **sections})

    def seal(self, params: Params) -> Facts:
        """Run `ingest`."""
        self.facts = handles.public_facts(self.workspace, params)
        found = handles.of(self.workspace, self.dataset)
        raw = {
            f"raw:{role}": registry.check(self.project, self.keyring, handle)
            for role, handle in found.items()
        }
        keys = {**self._seal_keys(), "split": self.keyring.split_key(self.facts.population)}
        ingest.main(self._room("ingest", params, keys=keys, extra=raw, facts={"facts": asdict(self.facts)}))
        return self.facts

    def run(self, params: Params, noise: int, *, reference: bool = False) -> PipelineResult:
        """Release, train and evaluate once, with noise key number `noise`; the time is from sealed records to
        trained model.
        """
        start = time.perf_counter()
        made = self._release(relevance, params, noise)
        made |= self._release(perturb, params, noise, outs=(perturb.RELEASE,))
        train.main(self._room("train", params))
        seconds = time.perf_counter() - start
        doors = (perturb.HOLDOUT, perturb.REFERENCE) if reference else (perturb.HOLDOUT,)
        self._release(perturb, params, noise, outs=doors)
        file = self.workspace / perturb.HOLDOUT / "holdout.parquet"
        accuracy = evaluate.judge(load_model(self.workspace / train.MODEL), file)[0]["accuracy"]
        compared = (
            evaluate.judge(load_model(self.workspace / perturb.REFERENCE), file)[0]["accuracy"]
            if reference
            else None
        )
        passes = sum(plan.passes for plan in made.values())
        proven = Whole(mechanism(params.release.mechanism)).plan(params, self.facts).proven.epsilon
        return PipelineResult(accuracy, seconds, passes, proven, compared)

    def open_holdout(self, params: Params) -> None:
        """Let the public holdout through its door, without a release beside it."""
        self._release(perturb, params, 0, outs=(perturb.HOLDOUT,))

    def sealed(self, params: Params) -> SealedReader:
        """The sealed training records."""
        return perturb.open_sealed(self._room("release", params, keys=self._seal_keys()), "train")

    def _release(
        self, stage: Any, params: Params, noise: int, outs: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Price, reserve, release, commit."""
        plans = {
            out: plan for out, plan in stage.plans(params, self.facts).items() if outs is None or out in outs
        }
        orders, keys = {}, self._seal_keys()
        for out, plan in plans.items():
            identity = hashlib.sha256(
                f"{manifest.release_id(plan, self.facts)} {noise} {time.time_ns()}".encode()
            ).hexdigest()
            shutil.rmtree(self.workspace / out, ignore_errors=True)
            if plan.mechanism == "none":
                manifest.write(self.workspace / out, plan=plan, facts=self.facts, release_id=identity)
                continue
            event = None if plan.public_only else dict(plan.proven.event or {})
            terms = {
                "neighbours": plan.proven.neighbours,
                "unit": plan.proven.unit,
                "passes": plan.passes,
                "public": True,
            }
            self.ledger.reserve(
                self.facts.population, release_id=identity, mechanism=plan.mechanism, event=event, **terms
            )
            orders[out] = {"id": identity}
            keys[f"noise:{out}"] = hashlib.sha256(
                f"bench {noise} {manifest.release_id(plan, self.facts)}".encode()
            ).digest()
        if orders:
            stage.main(
                self._room(
                    "release", params, keys=keys, facts={"facts": asdict(self.facts), "releases": orders}
                )
            )
        if self.identical_weights and relevance.RELEVANCE in orders:
            self._level_weights(plans[relevance.RELEVANCE], orders[relevance.RELEVANCE]["id"])
        for out, order in orders.items():
            self.ledger.commit(order["id"], manifest.digest(self.workspace / out))
        return plans

    def _level_weights(self, plan: Any, identity: str) -> None:
        """An ablation: the relevance release was paid for, but says that all features are alike."""
        folder = self.workspace / relevance.RELEVANCE
        tensors = load_tensors(folder / "relevance.safetensors")
        save_tensors(
            folder / "relevance.safetensors", {**tensors, "weights": np.ones_like(tensors["weights"])}
        )
        manifest.write(folder, plan=plan, facts=self.facts, release_id=identity)

    def _seal_keys(self) -> dict[str, bytes]:
        return {
            "seal:" + role: self.keyring.seal_key(context)
            for role, context in seal_contexts(self.facts).items()
        }

    def _room(
        self, stage: str, params: Params, *, extra: dict[str, Path] | None = None, **given: Any
    ) -> Room:
        names = [
            f"data/schemas/{self.dataset}.yaml",
            f"data/handles/{self.dataset}",
            "data/sealed",
            *(perturb.RELEASE, perturb.HOLDOUT, perturb.REFERENCE, relevance.RELEVANCE),
            *(train.MODEL, train.METRICS, train.CURVE),
        ]
        return Room(
            stage=stage,
            params=params,
            paths={**{name: self.workspace / name for name in names}, **(extra or {})},
            **given,
        )


def peak_memory_mb() -> float:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
