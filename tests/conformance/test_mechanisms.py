"""Every mechanism passes the same suite (tests/conformance/suite.py); one that is missing here makes a test
fail.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from airlock.errors import ParamsError
from airlock.inside.sealed import SealedWriter
from airlock.models.numbers import HALF
from airlock.models.papers import dynamics, filters
from airlock.params import Params
from airlock.privacy.continual import strategy_of
from airlock.privacy.plan import Facts
from airlock.privacy.weighing import weighing
from airlock.records.encoding import Encoded, pack
from stages.mechanisms import MECHANISMS, NUMBERS, mechanism
from stages.release import perturb, relevance
from stages.release.papers.dp_mac import coordinates, dp_mac
from stages.release.papers.dp_sgd import dp_sgd
from stages.release.papers.optimized_noise import optimized_noise
from tests.conformance.suite import NULL, Conformance, Statistic
from tests.support.sealed_records import KEY, facts, pictures

SAMPLED = {"batch": 24, "epochs": 4, "learning_rate": 0.1}
"""All records in every step: then one step is a Gaussian sum, and can be compared with its price."""


@pytest.fixture(autouse=True)
def short_training(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained on sums that have their noise already changes no price and no id: a few steps will do. Only where
    later sums go through what was trained are neighbours found further apart after all of them (0.79 of pCDBN's price,
    0.52 after five).
    """
    if request.instance is not None and request.instance.trains and "neighbour" in request.node.name:
        return
    for one in (filters.diverge, filters.diverge_freely, dynamics.train):
        assert one.__kwdefaults__ and "steps" in one.__kwdefaults__
        monkeypatch.setitem(one.__kwdefaults__, "steps", 5)


def test_every_mechanism_is_in_the_suite() -> None:
    classes = [one for one in globals().values() if inspect.isclass(one) and issubclass(one, Conformance)]
    named = {one.name for one in classes if one is not Conformance and hasattr(one, "name")}
    assert named == set(MECHANISMS)


class TestCoefficients(Conformance):
    name, on_cluster, asks_first = "coefficients", True, True


class TestCoefficientsInOneStage(Conformance):
    """As before there was a stage for what is asked first."""

    name, mode, on_cluster = "coefficients", "off", True


class TestNights(Conformance):
    """The first night of a horizon. A record reaches this night and later ones, so that what it moves is compared with
    the noise over how far it moves all of them (docs/proofs/continual.md#weighted-totals).
    """

    name, on_cluster = "coefficients", True

    def params(self, near: str = "zero-out", **release: Any) -> Params:
        return super().params(near, horizon=12, **release)

    def deviation(self, near: str, one: Statistic) -> Any:
        nights = {"gram": 1, "cross": 1, "averages": 12}.get(one.purpose)
        return one.scale / (weighing(nights).reach if nights else 1)


class TestNightsOfColumns(TestNights):
    """The first night of a table of numbers, which tells its columns beside the coefficients."""

    def params(self, near: str = "zero-out", **release: Any) -> Params:
        return super().params(near, **{"features": "hybrid-8-1", **release})

    def deviation(self, near: str, one: Statistic) -> Any:
        return one.scale / weighing({"averages": 12}.get(one.purpose, 1)).reach


class TestNightsBySquareRoot(Conformance):
    """As horizons were released at first: over the longest column of the strategy
    (docs/proofs/continual.md#guarantee).
    """

    name, on_cluster, asks_first = "coefficients", True, True

    def params(self, near: str = "zero-out", **release: Any) -> Params:
        options = {"strategy": "square-root", **release.pop("options", {})}
        return super().params(near, horizon=12, options=options, **release)

    def deviation(self, near: str, one: Statistic) -> Any:
        return one.scale / (strategy_of("square-root", 12).reach if one.purpose in ("gram", "cross") else 1)


class TestIterated(Conformance):
    name, on_cluster, asks_first, ticks = "coefficients-iterated", True, True, True


class TestIteratedByTheRuleForSmallTables(Conformance):
    """With the options that `auto` gives them."""

    name, on_cluster, asks_first, ticks = "coefficients-iterated", True, True, True
    options: ClassVar = {
        "shrunk_centre": True,
        "even_ridge": 1.0,
        "sureness_share": 0.1,
        "rounds": 3,
        "mean_share": 0.1,
    }


class TestIteratedAfterPublicPreparation(Conformance):
    """A mean and rounds, no matrix of rows."""

    name, options = "coefficients-iterated", {"preparation": "public"}
    on_cluster, asks_first, ticks = True, True, True


class TestIteratedAfterPublicPreparationInOneStage(TestIteratedAfterPublicPreparation):
    mode, asks_first = "off", False


class Quantiles(Conformance):
    """With numbers through their private quantiles, asked before all else."""

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        found = super().params(near, **release)
        return found.model_copy(update={"relevance": found.relevance.model_copy(update={"quantiles": True})})

    def test_what_is_refused_is_refused_before_a_record_is_read(self) -> None:
        super().test_what_is_refused_is_refused_before_a_record_is_read()
        with pytest.raises(ParamsError, match="relevance.quantiles is for tables, release.engine local"):
            self.mechanism().plan(self.params(engine="dask"), self.facts())


class TestCoefficientsOfQuantiles(Quantiles):
    name, asks_first = "coefficients", True


class TestCoefficientsOfQuantilesAlone(TestCoefficientsOfQuantiles):
    """One pass of coefficients, which asks nothing first but the quantiles."""

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        return super().params(near, **{"passes": 1, **release})


class TestIteratedOfQuantilesInOneStage(Quantiles):
    name, mode, ticks = "coefficients-iterated", "off", True

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        return super().params(near, **{"passes": 6, **release})


class Numbers(Conformance):
    """Of a label that is a number: a step of its grid, from 0 to 2 HALF."""

    def records(self) -> tuple[Any, Any]:
        x, y = super().records()
        return x, (y * HALF).astype(np.int32)

    def facts(self) -> Facts:
        return facts(self.records()[0], 1, number=(-3.0, 5.0))


class TestCoefficientsOfNumbers(Numbers):
    name, on_cluster, asks_first = "coefficients", True, True


class TestCoefficientsOfNumbersInOneStage(Numbers):
    name, mode, on_cluster = "coefficients", "off", True


class TestIteratedOfNumbers(Numbers):
    name, on_cluster, asks_first, ticks = "coefficients-iterated", True, True, True

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        return super().params(near, **{"features": "hybrid-8-1", "passes": 7, **release})


def test_what_knows_classes_only_refuses_a_number_before_a_record_is_read() -> None:
    known = facts(np.zeros((24, 4)), 1, number=(0.0, 1.0), label="price")
    for name in MECHANISMS:
        asked = Params.model_validate({"release": {"mechanism": name}})
        for stage in (perturb, relevance):
            if name in NUMBERS:
                assert stage.plans(asked, known)
            else:
                with pytest.raises(ParamsError, match="the label 'price' is a number: set release.mechanism"):
                    stage.plans(asked, known)
    weighed = Params.model_validate({"relevance": {"mode": "statistics"}})
    with pytest.raises(ParamsError, match="set relevance.mode to auto"):
        relevance.plans(weighed, known)


class TestInputs(Conformance):
    name = "inputs"


class TestBounds(Conformance):
    name = "bounds"


class TestInputsInTwoPasses(Conformance):
    name, options = "inputs", {"bins": 3, "label_weight": 2.0}

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        return super().params(near, **{"passes": 2, **release})


class TestNeuronAllocation(Conformance):
    name, options, asks_first = "neuron-allocation", {"hidden": 3, "epochs": 2}, True


class Pictures:
    """For mechanisms that take images."""

    def records(self) -> tuple[Any, Any]:
        return pictures(12, 3, side=16)


class TestIteratedOnLearnedFeatures(Pictures, Conformance):
    """Columns weighed by the spectrum of generated pictures, which the map brings along."""

    name, on_cluster, asks_first, ticks = "coefficients-iterated", True, True, True

    def params(self, near: str = "zero-out", **release: Any) -> Any:
        return super().params(near, **{"features": "prior-1", "passes": 4, **release})


class TestPatchMoments(Pictures, Conformance):
    name, options, asks_first, tightness = "patch-moments", {"layers": [2]}, True, 0.02


class Laplace(Conformance):
    """Records released one by one."""

    law = "laplace"

    def test_what_a_record_adds_does_not_depend_on_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Row by row: the inputs of a record are the same wherever it stands."""
        x, y = self.records()
        turned = np.roll(np.arange(len(y)), 7)
        base, other = (
            self.rows(monkeypatch, x[order], y[order], n) for order, n in ((slice(None), 9), (turned, 5))
        )
        assert np.array_equal(base[turned], other)

    def test_null_records_add_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All null records are the same row: inputs of zero, and what a loss is without a label."""
        x, y = self.records()
        found = self.rows(monkeypatch, x, np.full(len(y), NULL), 9)
        assert (found == found[0]).all()
        assert not found[0, : x[0].size].any()

    def rows(self, monkeypatch: pytest.MonkeyPatch, x: Any, y: Any, rows: int) -> Any:
        seen = self.statistics(monkeypatch, "zero-out", x, y, rows=rows)
        parts = {
            kind: [one.exact for one in seen if one.purpose.startswith(kind)]
            for kind in ("inputs", "coefficients")
        }
        return np.column_stack([np.concatenate(part) for part in parts.values()])

    def compared(self, seen: list[Statistic]) -> list[Statistic]:
        # The relevance comes through a network of the same bytes for neighbours; a bias of zeros has nothing
        # of a record.
        return [one for one in super().compared(seen) if one.purpose != "bias"]


class TestAdlm(Laplace):
    name, asks_first = "adlm", True


class TestIlm(Laplace):
    name = "ilm"


class TestPcdbn(Pictures, Conformance):
    name, options, law, exact, tightness = "pcdbn", {"maps": [2, 2], "hidden": 3}, "laplace", False, 0.001
    trains = True


class Sampled(Conformance):
    """Poisson samples, at rate 1."""

    options, long, exact, tightness = SAMPLED, True, False, 0.2


class TestDpSgd(Sampled):
    name = "dp-sgd"

    def deviation(self, near: str, one: Statistic) -> Any:
        return dp_sgd.resolve(self.params(near), self.facts())[1].noise


class TestEllipsoidNoise(Sampled):
    name = "ellipsoid-noise"

    def deviation(self, near: str, one: Statistic) -> Any:
        settings = dp_sgd.resolve(self.params(near), self.facts())[1]
        return settings.multiplier * settings.reach * settings.clip


class TestOptimizedNoise(Sampled):
    name = "optimized-noise"

    def deviation(self, near: str, one: Statistic) -> Any:
        return optimized_noise.resolve(self.params(near), self.facts()).deviation


class TestDpMac(Sampled):
    name = "dp-mac"
    options: ClassVar[dict[str, Any]] = {
        "batch": 24,
        "epochs": 4,
        "thresholds": "fixed",
        "hidden": [3],
        "z_steps": 3,
    }
    tightness = 0.01

    def deviation(self, near: str, one: Statistic) -> Any:
        import torch

        recipe = dp_mac.resolve(self.params(near), self.facts())
        largest = torch.full((recipe.layers,), recipe.options.threshold, dtype=torch.float64)
        return float(coordinates.deviations(largest, recipe)[int(one.purpose.split()[1])])


class Unproven(Conformance):
    """Nothing finite is proven, so there is no price to compare
    with; nulls and refusals are as everywhere.
    """

    proven, exact = False, False

    def test_no_neighbour_costs_more_than_was_priced(self) -> None:  # type: ignore[override]
        plan = self.mechanism().plan(self.params(), self.facts())
        assert math.isinf(plan.proven.epsilon)
        assert plan.proven.reason

    def test_null_records_add_nothing(self) -> None:  # type: ignore[override]
        """A null record is as if it were not there: the rest trains the same network."""
        x, y = self.records()
        y[-1] = NULL
        other = x.copy()
        other[-1] = self.extremes(x)[1]
        first, second = (self.make("zero-out", one, y) for one in (x, other))
        assert all(first[0][name].tobytes() == second[0][name].tobytes() for name in first[0])

    def test_what_a_record_adds_does_not_depend_on_the_others(self) -> None:  # type: ignore[override]
        """There are no sums of records here."""


class TestNeuronNoise(Unproven):
    name, asks_first, ticks = "neuron-noise", True, True
    options: ClassVar[dict[str, Any]] = {"hidden": [4, 3], "epochs": 2, "iterations": 4, "batch": 8}


class Windows:
    """For mechanisms that take windows with slots."""

    def records(self) -> tuple[Any, Any]:
        random = np.random.default_rng(4)
        return random.random((15, 3 * 3 + 2)), random.integers(0, 2, 15)

    def facts(self) -> Facts:
        known: Facts = super().facts()  # type: ignore[misc]
        return replace(known, per_user=3, friends={"slots": 2, "appearances": 6})

    def batch(self, x: Any, y: Any) -> Any:
        valid = (y >= 0).astype(np.uint8)
        users = np.arange(len(y), dtype=np.int64) % 5
        return pack(Encoded(x * valid[:, None], y.astype(np.int32), valid), user=users)

    def seal(self, folder: Path, x: Any, y: Any) -> None:
        with SealedWriter(folder / "train.sealed", KEY, rows=16) as writer:
            writer.write(self.batch(x, y))


class TestBehaviour(Windows, Conformance):
    name, options, tightness = "behaviour", {"days": 2, "height": 2, "groups": 2}, 0.01


class TestBehaviourPublished(Windows, Unproven):
    name = "behaviour-published"
    options: ClassVar[dict[str, Any]] = {
        "days": 2,
        "height": 2,
        "groups": 2,
        "epochs": 2,
        "pretraining_epochs": 1,
    }


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_make_has_the_same_signature_for_all(name: str) -> None:
    """Only what `makes` wraps is a `make`, and that has one signature."""
    for make in (mechanism(name).make, mechanism(name).make_relevance):
        assert make.__wrapped__.__code__.co_varnames[:1] == ("given",)  # type: ignore[attr-defined]


def test_the_table_is_what_params_and_documents_say() -> None:
    top = Path(__file__).parents[2]
    params, document = (top / "params.yaml").read_text(), (top / "docs/mechanism.md").read_text()
    line = next(line for line in params.splitlines() if line.strip().startswith("mechanism:"))
    for name in MECHANISMS:
        assert name in line.replace(",", " ").replace(";", " ").split()
        assert f"| `{name}` |" in document
