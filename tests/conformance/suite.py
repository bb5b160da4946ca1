"""What every mechanism must do, whatever it computes. tests/conformance/test_mechanisms.py has one class for
each of them.

Statistics are watched where they meet their noise. A neighbour is run on the transcript of the first run (the
same noisy sums come back, whatever the exact ones are), as a proof of adaptive composition has it; then what
the pair costs, sum by sum, must be within what was priced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.params import Params, TrainParams
from airlock.privacy import noise
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import Encoded, pack
from airlock.storage import load_tensors
from stages.mechanisms import Whole, mechanism
from stages.release import interactive, perturb, relevance
from tests.support.report_inputs import Inputs
from tests.support.sealed_records import KEY, facts, seal, table

NEAR = ("zero-out", "replace-one")
NULL = -1


class Killed(Exception):
    """In place of a signal."""


@dataclass
class Statistic:
    """One exact number array that met its noise."""

    purpose: str
    exact: Any
    scale: Any
    form: str


@dataclass
class Reader:
    """Batches in memory that count how often each is read."""

    batches: list[Any]
    reads: list[int] = field(default_factory=list)

    @property
    def chunks(self) -> int:
        return len(self.batches)

    def read(self, index: int) -> Any:
        self.reads.append(index)
        return self.batches[index]

    def __iter__(self) -> Iterator[Any]:
        return (self.read(index) for index in range(self.chunks))

    def most(self) -> int:
        """How often a batch was read, of the one that was read most often."""
        return max(self.reads.count(index) for index in range(self.chunks))


class Unreadable:
    """Records that must not be read."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("a record was read")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a record was read")


class Conformance:
    """Inherited by every mechanism's tests.

    Attributes:
        name: in the table of mechanisms.
        mode: of relevance: with auto both stages run, and are judged together.
        options: that make it small.
        asks_first: has a relevance stage of its own.
        on_cluster: offers release.engine dask.
        long: takes steps, tells how far it is, and goes on from a checkpoint.
        ticks: tells how far it is.
        trains: later sums go through what was trained on earlier ones.
        proven: a finite epsilon is proven, so that prices can be compared with what neighbours do.
        exact: sums are integers, the same bits in any order.
        law: of the noise, gaussian or laplace.
    """

    name: ClassVar[str]
    mode: ClassVar[str] = "auto"
    options: ClassVar[Mapping[str, Any]] = {}
    on_cluster: ClassVar[bool] = False
    asks_first: ClassVar[bool] = False
    long: ClassVar[bool] = False
    ticks: ClassVar[bool] = False
    trains: ClassVar[bool] = False
    proven: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    law: ClassVar[str] = "gaussian"
    relations: ClassVar[tuple[str, ...]] = NEAR

    # --- What it is tried on
    # ---------------------------------------------------------------------------------------------

    def records(self) -> tuple[Any, Any]:
        """Encoded records and labels."""
        return table(24, 4, 3)

    def extremes(self, x: Any) -> list[Any]:
        """Records at the ends of what is possible, for adversarial neighbours."""
        top = 255 if x.dtype == np.uint8 else 1
        mixed = np.zeros_like(x[0])
        mixed.flat[::2] = top
        return [np.zeros_like(x[0]), np.full_like(x[0], top), mixed]

    def facts(self) -> Facts:
        x, y = self.records()
        return facts(x, int(y.max()) + 1)

    def params(self, near: str = "zero-out", **release: Any) -> Params:
        given = {"mechanism": self.name, "epsilon": 2.0, "neighbours": near, "options": dict(self.options)}
        return Params.model_validate({"relevance": {"mode": self.mode}, "release": {**given, **release}})

    def mechanism(self) -> Whole:
        return Whole(mechanism(self.name))

    def batch(self, x: Any, y: Any) -> Any:
        valid = (y >= 0).astype(np.uint8)
        x = np.where(valid.reshape(-1, *[1] * (x.ndim - 1)) > 0, x, 0).astype(x.dtype)
        return pack(Encoded(x, y.astype(np.int32), valid))

    def reader(self, x: Any, y: Any, rows: int = 9) -> Reader:
        return Reader([self.batch(x[at : at + rows], y[at : at + rows]) for at in range(0, len(y), rows)])

    def make(self, near: str, x: Any, y: Any, rows: int = 9, **given: Any) -> Any:
        return self.mechanism().make(
            self.params(near), self.facts(), self.reader(x, y, rows), key=KEY, release_id="id", **given
        )

    # --- What meets its noise
    # --------------------------------------------------------------------------------------------

    @contextmanager
    def watched(
        self, monkeypatch: pytest.MonkeyPatch, before: list[Any] | None = None
    ) -> Iterator[list[Statistic]]:
        """Every statistic of a run. With the transcript of another run, its noisy sums come back."""
        seen: list[Statistic] = []
        answers: list[Any] = []
        added, columns, stream = noise.add_noise, noise.add_laplace_by_column, interactive.Keyed.stream

        def add_noise(total: Any, **given: Any) -> Any:
            seen.append(
                Statistic(given["purpose"], total.copy(), given["scale"], given.get("form", "gaussian"))
            )
            answers.append(added(total, **given) if before is None else before[len(answers)])
            return answers[-1]

        def by_column(total: Any, **given: Any) -> Any:
            seen.append(Statistic(given["purpose"], total.copy(), given["scales"], "laplace"))
            answers.append(columns(total, **given) if before is None else before[len(answers)])
            return answers[-1]

        def watch(self: Any, step: int, purpose: str, total: Any) -> Any:
            seen.append(Statistic(f"{purpose} {step}", total.detach().cpu().double().numpy(), None, "float"))
            return stream(self, step, purpose, total)

        with monkeypatch.context() as patch:
            patch.setattr(noise, "add_noise", add_noise)
            patch.setattr(interactive.Keyed, "stream", watch)
            patch.setattr(noise, "add_laplace_by_column", by_column)
            yield seen
        self._answers = answers

    def statistics(
        self, monkeypatch: pytest.MonkeyPatch, near: str, x: Any, y: Any, **how: Any
    ) -> list[Statistic]:
        with self.watched(monkeypatch, how.pop("before", None)) as seen:
            self.make(near, x, y, **how)
        return self.compared(seen)

    def compared(self, seen: list[Statistic]) -> list[Statistic]:
        """Of floating-point sums the first only: the next depend on noise that cannot be given back."""
        first = [one for one in seen if one.form == "float" and one.purpose.endswith(" 0")]
        return [one for one in seen if one.form != "float"] + first

    def deviation(self, near: str, one: Statistic) -> Any:
        """Of the noise on a statistic."""
        return one.scale

    def cost(self, near: str, one: list[Statistic], other: list[Statistic]) -> float:
        """Of a pair of data sets: sum of squares of distances in deviations (Gaussian), or of L1 distances in
        scales (Laplace).
        """
        total = 0.0
        for first, second in zip(one, other, strict=True):
            moved = np.abs((first.exact - second.exact) / self.deviation(near, first))
            total += float(moved.sum() if self.law == "laplace" else (moved**2).sum())
        return total

    def price(self, near: str) -> float:
        """What was priced, in the same terms."""
        event = self.mechanism().plan(self.params(near), self.facts()).proven.event
        assert event is not None
        return _price(event)

    # --- The tests
    # -------------------------------------------------------------------------------------------------------

    def test_the_price_is_known_before_a_record_is_read(self) -> None:
        plan = self.mechanism().plan(self.params(), self.facts())
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
        assert plan.mechanism == self.name == self.mechanism().NAME
        assert plan.passes > 0
        assert math.isfinite(plan.proven.epsilon) == self.proven
        assert plan.public_only != self.proven
        if self.proven:
            # `release.epsilon` is the total of both stages, whatever the mechanism.
            assert plan.proven.epsilon <= 2.0 + 1e-12

    def test_what_is_refused_is_refused_before_a_record_is_read(self) -> None:
        known, half = self.facts(), self.mechanism()
        asked = [
            self.params(options={**self.options, "no-such-option": 1}),
            Params.model_validate(
                {"release": {"mechanism": self.name, "unit": "user", "options": self.options}}
            ),
        ]
        asked += [] if self.on_cluster else [self.params(engine="dask")]
        for params in asked:
            for call in (half.plan, lambda *given: half.make(*given, Unreadable(), key=KEY, release_id="id")):
                with pytest.raises(ParamsError):
                    call(params, replace(known, per_user=None, friends=None))

    def test_the_manifest_is_the_plan_and_all_numbers_are_finite(self, tmp_path: Path) -> None:
        x, y = self.records()
        (tmp_path / "sealed").mkdir()
        self.seal(tmp_path / "sealed", x, y)
        known, params, plans = (
            self.facts(),
            self.params(),
            self.mechanism().plans(self.params(), self.facts()),
        )
        stages = [(relevance, relevance.RELEVANCE), (perturb, perturb.RELEASE)][-len(plans) :]
        for (stage, out), plan in zip(stages, plans, strict=True):
            room = Room(
                stage="release",
                params=params,
                facts={"facts": asdict(known), "releases": {out: {"id": f"an id of {out}"}}},
                keys={"seal:train": KEY, f"noise:{out}": KEY},
                paths={"data/sealed": tmp_path / "sealed", **{one: tmp_path / one for _, one in stages}},
            )
            assert stage.plans(params, known)[out] == plan
            stage.main(room)
            made = manifest.load(tmp_path / out)
            assert (made.mechanism, made.passes, made.proven) == (plan.mechanism, plan.passes, plan.proven)
            assert made.parameters == json.loads(json.dumps(dict(plan.parameters)))
            (tensors,) = (load_tensors(path) for path in (tmp_path / out).glob("*.safetensors"))
            assert all(np.isfinite(value).all() for value in tensors.values())

    def test_the_page_shows_its_learning_curve(self, tmp_path: Path) -> None:
        known, inputs, params = self.facts(), Inputs(tmp_path), self.params()
        tensors, details = self.make(self.relations[0], *self.records())
        data = {name: getattr(known, name) for name in ("kind", "n", "shape", "labels", "schema")}
        made = json.loads(json.dumps({"data": data, **details}))
        plan = self.mechanism().plan(params, known)
        (folder := tmp_path / "data/released/release").mkdir(parents=True)
        perturb.save_released(folder / perturb.TENSORS, tensors)
        inputs.release(
            "release", mechanism=self.name, proven=plan.proven, interactive=plan.interactive, details=made
        )
        release = manifest.load(folder)
        asked = TrainParams(epochs=3)
        if self.name == "bounds":
            with pytest.raises(ParamsError, match="no model"):
                mechanism(self.name, "open").train(asked, release, tensors)
            return
        trained = mechanism(self.name, "open").train(asked, release, tensors)
        assert len(trained.curve) > 1 and np.isfinite(trained.curve).all()
        rows = "".join(f"{epoch},{loss:.9g}\n" for epoch, loss in trained.curve)
        inputs.write("data/plots/learning_curve.csv", f"epoch,loss\n{rows}")
        inputs.write("data/metrics/train.json", trained.metrics)
        page = inputs.page(facts={}, release={"mechanism": self.name})
        section = page.split('<section id="curve"')[1].split("</section>")[0]
        assert "<svg" in section and "There is no curve" not in section
        assert ("reads no records and costs no privacy" in section) == (not self.trained_inside(details))

    def trained_inside(self, details: Mapping[str, Any]) -> bool:
        """Whether the release is a trained model, so that another curve is another release."""
        return "curve" in details or "losses" in details

    def seal(self, folder: Path, x: Any, y: Any) -> None:
        seal(folder, x, y)

    def test_records_are_not_read_more_often_than_was_priced(self) -> None:
        """In each stage for itself: the release does not ask again what relevance was asked for."""
        (x, y), half, asked = self.records(), mechanism(self.name), (self.params(), self.facts())
        named: dict[str, Any] = {"key": KEY, "release_id": "id"}
        first, earlier = half.relevance(*asked), None
        if first:
            earlier = half.make_relevance(*asked, reader := self.reader(x, y), **named)
            assert reader.most() <= first.passes
        half.make(*asked, reader := self.reader(x, y), relevance=earlier, **named)
        assert reader.most() <= half.plan(*asked).passes

    def test_what_is_asked_first_has_a_price_and_an_id_of_its_own(self) -> None:
        """The total is what was asked for, and no later price or training is in its id."""
        whole, known = self.mechanism(), self.facts()
        first = whole.half.relevance(self.params(), known)
        assert bool(first) == (self.mode == "auto" and self.asks_first)
        if first is None:
            return
        assert (
            whole.plan(self.params(), known).passes
            == first.passes + whole.half.plan(self.params(), known).passes
        )
        if self.proven:
            assert whole.plan(self.params(), known).proven.epsilon <= 2.0 + 1e-12
            assert first.proven.epsilon < 2.0

    def test_nothing_is_made_without_what_it_builds_on(self) -> None:
        half = mechanism(self.name)
        if half.relevance(self.params(), self.facts()) is None:
            pytest.skip("it builds on nothing")
        with pytest.raises(ReleaseError, match="dvc repro relevance"):
            half.make(self.params(), self.facts(), self.reader(*self.records()), key=KEY, release_id="id")

    def test_the_same_release_is_the_same_bytes_and_another_id_is_other_noise(self) -> None:
        x, y = self.records()
        known, half = self.facts(), self.mechanism()
        first, again, other = (
            half.make(self.params(), known, self.reader(x, y), key=KEY, release_id=one)
            for one in ("a", "a", "b")
        )
        assert all(first[0][name].tobytes() == again[0][name].tobytes() for name in first[0])
        assert first[1] == again[1]
        assert any(first[0][name].tobytes() != other[0][name].tobytes() for name in first[0])

    def test_no_records_change_the_shape_of_what_is_released(self) -> None:
        x, y = self.records()
        shapes = []
        for labels in (y, np.where(y == y.max(), NULL, y), np.where(y == y.min(), y, NULL)):
            tensors, _ = self.make("zero-out", x, labels)
            shapes.append({name: (one.shape, one.dtype) for name, one in tensors.items()})
        assert shapes[0] == shapes[1] == shapes[2]

    def test_what_a_record_adds_does_not_depend_on_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = self.records()
        base = self.statistics(monkeypatch, "zero-out", x, y)
        answers, turned = self._answers, np.roll(np.arange(len(y)), 7)
        other = self.statistics(monkeypatch, "zero-out", x[turned], y[turned], rows=5, before=answers)
        for one, two in zip(base, other, strict=True):
            assert (
                np.array_equal(one.exact, two.exact)
                if self.exact
                else np.allclose(one.exact, two.exact, atol=1e-4)
            )

    def test_null_records_add_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = self.records()
        for one in self.statistics(monkeypatch, "zero-out", x, np.full(len(y), NULL)):
            assert not one.exact.any()

    @pytest.mark.parametrize("near", NEAR)
    def test_no_neighbour_costs_more_than_was_priced(
        self, near: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if near not in self.relations:
            pytest.skip("not offered")
        x, y = self.records()
        price, found = self.price(near), 0.0
        for base in self.extremes(x):
            x[0], y[0] = base, 0
            whole = self.statistics(monkeypatch, near, x, y)
            answers = self._answers
            for label, other in self.neighbours(near, x, y):
                changed, labels = x.copy(), y.copy()
                changed[0], labels[0] = other, label
                cost = self.cost(
                    near, whole, self.statistics(monkeypatch, near, changed, labels, before=answers)
                )
                assert cost <= price * (1 + 1e-6)
                found = max(found, cost)
        # The search is one: some pair comes near to the price.
        assert found >= self.tightness * price

    tightness: ClassVar[float] = 0.05

    def test_whatever_shapes_the_bytes_is_in_the_id(self) -> None:
        """One id stands for one release: parameters that leave the id of a stage as it is leave its bytes as
        they are, too. Otherwise a replay would be another release, and nobody would have paid for it.
        """
        known, (x, y), half = self.facts(), self.records(), mechanism(self.name)
        named: dict[str, Any] = {"key": KEY, "release_id": "id"}

        def made(params: Params) -> list[Any]:
            first = half.relevance(params, known)
            earlier = half.make_relevance(params, known, self.reader(x, y), **named) if first else None
            last = half.make(params, known, self.reader(x, y), relevance=earlier, **named)
            return [_bytes(one) for one in (earlier, last) if one is not None]

        base = self.params()
        ids, whole, alike = _ids(half, base, known), made(base), 0
        for changed in variations(base, getattr(half, "Options", None)):
            try:
                other = _ids(half, changed, known)
            except ParamsError:
                continue
            # The id of what comes later has that of the first in it: what is alike is alike from the start.
            same = [one == two for one, two in zip(ids, other, strict=False)]
            if len(ids) == len(other) and same[0]:
                found, alike = made(changed), alike + 1
                assert found[0] == whole[0], changed.release
                assert not all(same) or found == whole, changed.release
        assert alike, "some parameter is of no concern to the first release"

    def test_no_forged_first_release_makes_a_neighbour_cost_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The runner gives a release stage what was committed and nothing else; a mechanism does not rest on
        that alone. What it is given is used safely, or refused whatever the records are.
        """
        half, asked, (x, y) = mechanism(self.name), (self.params(), self.facts()), self.records()
        if not self.proven or half.relevance(*asked) is None:
            pytest.skip("nothing finite is proven of it, or it builds on nothing")
        named: dict[str, Any] = {"key": KEY, "release_id": "id"}
        tensors, details = half.make_relevance(*asked, self.reader(x, y), **named)
        gone = y.copy()
        gone[0] = NULL
        for forged in forgeries(tensors):
            first = forged, details
            whole = self._judged(monkeypatch, half, first, x, y)
            told = self._answers if isinstance(whole, list) else None
            without = self._judged(monkeypatch, half, first, x, gone, told)
            if isinstance(whole, list) and isinstance(without, list):
                assert self.cost("zero-out", whole, without) <= self.price("zero-out") * (1 + 1e-6)
            else:
                assert whole == without, "whether it is refused depends on a record"

    def _judged(
        self,
        monkeypatch: pytest.MonkeyPatch,
        half: Any,
        first: Any,
        x: Any,
        y: Any,
        before: list[Any] | None = None,
    ) -> list[Statistic] | type[Exception]:
        """The statistics of a release that builds on `first`, or why there is none."""
        named: dict[str, Any] = {"key": KEY, "release_id": "id", "relevance": first}
        try:
            with self.watched(monkeypatch, before) as seen:
                half.make(self.params(), self.facts(), self.reader(x, y), **named)
        except Exception as error:
            return type(error)
        return self.compared(seen)

    def neighbours(self, near: str, x: Any, y: Any) -> list[tuple[int, Any]]:
        """Labels and records in the place of the first."""
        if near == "zero-out":
            return [(NULL, np.zeros_like(x[0]))]
        return [(label, one) for one in self.extremes(x) for label in (0, int(y.max()))]

    def test_progress_is_told_where_it_takes_long(self) -> None:
        answers: list[tuple[int, int]] = []
        x, y = self.records()
        self.make("zero-out", x, y, tick=lambda *at: answers.append(at))
        assert bool(answers) == (self.long or self.ticks)

    def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not self.long:
            pytest.skip("it takes no steps")
        monkeypatch.setattr(interactive, "CHECKPOINT_STEPS", 1)
        x, y = self.records()
        whole, _ = self.make("zero-out", x, y)

        def kill(done: int, total: int) -> None:
            if done == 2:
                raise Killed

        with pytest.raises(Killed):
            self.make("zero-out", x, y, checkpoint=tmp_path, tick=kill)
        answers: list[int] = []
        again, _ = self.make(
            "zero-out", x, y, checkpoint=tmp_path, tick=lambda done, total: answers.append(done)
        )
        assert answers[0] == 2
        assert all(whole[name].tobytes() == again[name].tobytes() for name in whole)


def variations(params: Params, options: Any) -> Iterator[Params]:
    """The same parameters with one of them changed, each in turn."""
    document = params.model_dump(mode="json")
    sections = {
        "release": {
            "delta": 2e-6,
            "passes": 2,
            "features": "cosine-16-1",
            "reference": False,
            "epsilon": 2.1,
        },
        "relevance": {"mode": "off", "share": 0.3, "epsilon": 0.5, "network": "public"},
        "train": {"seed": 7},
    }
    for section, values in sections.items():
        for name, value in values.items():
            yield Params.model_validate({**document, section: {**document[section], name: value}})
    given = document["release"]["options"]
    for name, option in (options.model_fields if options else {}).items():
        for value in _others(option, given.get(name, option.default)):
            try:
                options.model_validate({**given, name: value})
            except ValueError:
                continue
            release = {**document["release"], "options": {**given, name: value}}
            yield Params.model_validate({**document, "release": release})


def _others(option: Any, value: Any) -> list[Any]:
    """Other values that an option may have; where nobody knows its kind, a few are tried."""
    words = [one for one in _words(option.annotation) if one != value]
    if words:
        return words[:2]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    return [value * 0.9] if isinstance(value, float) else [2, 0.25]


def _words(annotation: Any) -> list[str]:
    found = [one for one in get_args(annotation) if isinstance(one, str)]
    return found + [word for one in get_args(annotation) if get_args(one) for word in _words(one)]


def _ids(half: Any, params: Params, known: Facts) -> list[str]:
    """Of both stages, as the runner has them."""
    first = half.relevance(params, known)
    ids = [manifest.release_id(first, known)] if first else []
    return [*ids, manifest.release_id(half.plan(params, known), known, ids)]


def _bytes(released: Any) -> Any:
    tensors, details = released
    return {name: np.asarray(value).tobytes() for name, value in tensors.items()}, json.dumps(details)


def forgeries(tensors: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A first release with one tensor replaced by what nobody released."""
    for name, value in tensors.items():
        numbers = np.asarray(value)
        for other in (
            numbers.reshape(-1)[:1],
            np.full(numbers.shape, 2**40, np.int64),
            np.full(numbers.shape, 1e300),
            np.full(numbers.shape, np.nan),
        ):
            yield {**tensors, name: other}


def _price(event: Mapping[str, Any]) -> float:
    """Sum of 1/z^2 over Gaussians, sum of 1/z over Laplace mechanisms, of one step of what is sampled (at
    rate 1).
    """
    kind = event["kind"]
    if kind == "composed":
        return sum(_price(one) for one in event["events"])
    if kind == "self-composed" and event["event"]["kind"] == "poisson-sampled":
        assert event["event"]["sampling_probability"] == 1
        return _price(event["event"]["event"])
    if kind == "self-composed":
        return float(event["count"]) * _price(event["event"])
    if kind == "discrete-laplace":
        return float(event["noise_parameter"])
    return float(event["noise_multiplier"]) ** -(1 if kind == "laplace" else 2)
