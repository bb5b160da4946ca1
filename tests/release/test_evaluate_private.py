"""The count of right answers moves by at most one with one record, for every model that can be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.errors import InputError
from airlock.inside.room import Room
from airlock.inside.sealed import FILES
from airlock.models.model import NO_ANSWER, Model, forward, model_of
from airlock.models.papers.networks import LAYERED_NETWORKS, NETWORKS, UnitRange
from airlock.params import Params
from airlock.records.encoding import unpack
from airlock.storage import load_model, load_tensors, save_model, save_tensors
from stages.release import evaluate_private, measured
from stages.release.perturb import open_sealed
from tests.support import models
from tests.support.sealed_records import KEY, facts, seal

N = 12


def room_of(folder: Path, model: Model, x: Any, y: Any, valid: Any = None) -> Room:
    """Sealed holdout records and a model folder, as the stage finds them."""
    if not (folder / "model").exists():
        save_model(model, folder / "model")
    seal(folder, x, y, valid)
    (folder / "train.sealed").replace(folder / FILES["holdout"])
    known = replace(facts(x, len(model.labels)), labels=model.labels, n_holdout=len(x))
    out = evaluate_private.EVALUATION
    return Room(
        stage="evaluate-private",
        params=Params.model_validate({"evaluate": {"holdout": "private"}}),
        facts={"facts": asdict(known), "releases": {out: {"id": "id"}}},
        keys={"seal:holdout": KEY, f"noise:{out}": b"n" * 32},
        paths={"data/sealed": folder, "data/model": folder / "model", out: folder / "out"},
    )


def count(folder: Path, model: Model, x: Any, y: Any, valid: Any = None) -> int:
    """As the stage counts: the model from its folder, the records from their sealed file."""
    room = room_of(folder, model, x, y, valid)
    exact = evaluate_private.exact_sums(room, evaluate_private.fitting_model(room, known_facts(room)))
    return int(exact["right"][0])


def known_facts(room: Room) -> Any:
    from stages.release.perturb import facts_of

    return facts_of(room)


def test_every_network_is_among_the_models_of_this_test() -> None:
    assert {name.partition(":")[0] for name in models.NETWORKS} == {*NETWORKS, *LAYERED_NETWORKS}


@pytest.mark.parametrize("kind", list(models.KINDS))
def test_a_record_is_answered_alike_alone_first_last_and_among_any_neighbours(
    kind: str, tmp_path: Path
) -> None:
    model = models.model(kind)
    x = models.records(model.shape, N)
    y = np.where(np.arange(N) % 2, model.predict_alone(x), 0).astype(np.int32)
    whole = count(tmp_path, model, x, y)
    assert whole == int((model.predict_alone(x) == y).sum())
    assert whole == count(tmp_path, model, x[::-1], y[::-1])
    extreme = np.zeros_like(x[0]), np.full_like(x[0], 255 if x.dtype == np.uint8 else 1)
    for place in (0, N - 1):
        valid, alone = (
            np.arange(N) != place,
            count(tmp_path, model, x[place : place + 1], y[place : place + 1]),
        )
        assert count(tmp_path, model, x, y, valid) == whole - alone
        for other in extreme:
            changed, labels = x.copy(), y.copy()
            changed[place], labels[place] = other, 0
            mine = count(tmp_path, model, changed[place : place + 1], labels[place : place + 1])
            assert count(tmp_path, model, changed, labels) == whole - alone + mine


@pytest.mark.parametrize("kind", list(models.KINDS))
def test_scores_of_a_record_alone_are_the_same_bits_wherever_it_stands(kind: str) -> None:
    model = models.model(kind)
    x, scores = models.records(model.shape, 9), model.scorer()
    alone = [scores(x[place : place + 1].copy()) for place in range(9)]
    again = [scores(x[::-1][place : place + 1].copy()) for place in range(9)][::-1]
    assert all(np.array_equal(one, other) for one, other in zip(alone, again, strict=True))


def test_in_batches_of_other_lengths_bits_do_change() -> None:
    """The control: why records are answered one by one, and nulls are not left out."""
    random = np.random.default_rng(0)
    rows, layers = random.standard_normal((1023, 77)), [(random.standard_normal((77, 10)), np.zeros(10))]
    whole = forward(rows, layers)
    shorter = [forward(rows[:length], layers) for length in (1, 2, 3, 5, 700, 1021)]
    assert any(not np.array_equal(one, whole[: len(one)]) for one in shorter)


class Rescaling(UnitRange):
    """As it was: the ends of the batch, when many records are predicted."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        least, greatest = hidden.amin(0), hidden.amax(0)
        return ((hidden - least) / (greatest - least).clamp_min(1e-6)).clamp(0, 1)


def crafted() -> tuple[Model, Any, Any]:
    """A network and 1,000 records: by the ends of the batch, one
    record decides what all others are answered.
    """
    first, last, outputs = (
        np.zeros((32, 2), np.float32),
        np.zeros((25, 32), np.float32),
        np.zeros((3, 25), np.float32),
    )
    first[0, 0] = first[1, 1] = last[0, 0] = last[1, 1] = outputs[1, 0] = 1
    outputs[0, 1] = 0.5
    changes = {
        "first.weight": first,
        "last.0.weight": last,
        "last.0.bias": np.zeros(25, np.float32),
        "outputs.weight": outputs,
    }
    x = np.tile([0.01, 1.0], (1000, 1))
    x[0] = 0
    x[-1] = 1
    return models.network("adlm", (2,), changes), x, np.ones(1000, np.int32)


def test_a_crafted_network_does_not_make_others_depend_on_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = crafted()
    without = np.arange(1000) < 999
    counts = [count(tmp_path, model, x, y, valid) for valid in (None, without)]
    assert abs(counts[0] - counts[1]) <= 1
    # The control: as it was before, in batches, without the nulls.
    monkeypatch.setattr("airlock.models.papers.networks.UnitRange", Rescaling)
    before = [int((model.predict(x[rows]) == 1).sum()) for rows in (without, np.ones(1000, bool))]
    assert before == [998, 1]


def test_a_model_with_weights_near_the_least_number_is_refused_before_a_record_is_read(
    tmp_path: Path,
) -> None:
    made = models.model("tabular-2 rows")
    save_model(replace(made, steps=made.steps[:1]), tmp_path / "model")
    tensors = load_tensors(tmp_path / "model/model.safetensors")
    tensors["weights"] = np.full(7, 1e-165)
    save_tensors(tmp_path / "model/model.safetensors", {**tensors, "centre": tensors["centre"].astype(float)})
    x = models.records(made.shape, 200)
    # Nothing is sealed here, so a record could not be read.
    room = replace_paths(room_of(tmp_path, made, x, np.zeros(200, np.int32)), tmp_path / "nowhere")
    with pytest.raises(InputError, match="damaged model"):
        evaluate_private.main(room)
    # The control: unchecked, it fails on some records and not on others.
    document = json.loads((tmp_path / "model/model.json").read_text())
    answers = model_of(document, load_tensors(tmp_path / "model/model.safetensors")).predict_alone(x)
    assert 0 < (answers == NO_ANSWER).sum() < len(x)


def replace_paths(room: Room, sealed: Path) -> Room:
    return replace(room, paths={**room.paths, "data/sealed": sealed})


def test_a_record_whose_scores_are_not_finite_counts_as_wrong(tmp_path: Path) -> None:
    huge = {
        f"layers.{place}.weight": np.full(size, 1e14, np.float32)
        for place, size in ((1, (9, 6)), (3, (9, 9)), (5, (3, 9)))
    }
    huge |= {f"layers.{place}.bias": np.zeros(size, np.float32) for place, size in ((1, 9), (3, 9), (5, 3))}
    model = models.network("relu:9-9", models.TABLE, huge)
    x = np.zeros((4, 6))
    x[2] = 1
    assert model.predict_alone(x).tolist() == [0, 0, NO_ANSWER, 0]
    assert count(tmp_path, model, x, np.zeros(4, np.int32)) == 3


def test_an_error_in_the_arithmetic_of_one_record_counts_as_wrong() -> None:
    def scores(records: Any) -> Any:
        if records[0, 0] > 0.5:
            raise ArithmeticError("a row is longer than the bound")
        return np.ones((1, 3))

    class Failing(Model):
        def scorer(self) -> Callable[[Any], Any]:
            return scores

    failing = Failing("", "tabular", (1,), models.CLASSES, [], [])
    assert failing.predict_alone(np.array([[0.0], [1.0], [0.2]])).tolist() == [0, NO_ANSWER, 0]


DAMAGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "a weight that is not a number": lambda document, tensors: tensors["layer0.weight"].__setitem__(
        (0, 0), np.nan
    ),
    "a weight that is infinite": lambda document, tensors: tensors["layer1.offset"].__setitem__(0, np.inf),
    "a huge weight": lambda document, tensors: tensors["layer1.offset"].__setitem__(0, 1e16),
    "layers that do not fit": lambda document, tensors: tensors.update({"layer1.weight": np.ones((4, 3))}),
    "one score too few": lambda document, tensors: document.update(labels=["a", "b", "c", "d"]),
    "a centre of floats": lambda document, tensors: tensors.update(centre=tensors["centre"].astype(float)),
    "a centre too far": lambda document, tensors: tensors["centre"].__setitem__(0, 2**15),
    "huge whitening": lambda document, tensors: tensors["whitening"].__setitem__((0, 0), 2**50),
    "weights of the columns that are too large": lambda document, tensors: tensors.update(
        weights=np.full(7, 2**19)
    ),
    "an unknown feature map": lambda document, tensors: document.update(features="tabular-9"),
    "another shape": lambda document, tensors: document.update(shape=[5]),
    "no layers": lambda document, tensors: document.update(layers=[]),
    "a shape of texts": lambda document, tensors: document.update(shape=["6"]),
    "an unknown network": lambda document, tensors: document.update(network="adlm-2"),
    "a network too wide": lambda document, tensors: document.update(network="relu:99999999"),
    "a network without its weights": lambda document, tensors: document.update(network="linear"),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_model_is_checked_when_it_is_loaded(damage: str, tmp_path: Path) -> None:
    save_model(models.model("tabular-2 rows"), tmp_path)
    load_model(tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    tensors = {name: value.copy() for name, value in load_tensors(tmp_path / "model.safetensors").items()}
    DAMAGES[damage](document, tensors)
    save_tensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="damaged model"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in models.KINDS if " rows" not in kind])
def test_weights_of_other_models_are_checked_too(kind: str, tmp_path: Path) -> None:
    save_model(models.model(kind), tmp_path)
    load_model(tmp_path)
    tensors = {name: value.copy() for name, value in load_tensors(tmp_path / "model.safetensors").items()}
    name = next(name for name in sorted(tensors) if tensors[name].dtype != np.int64 and tensors[name].size)
    tensors[name].flat[0] = np.nan
    save_tensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(InputError, match="damaged model"):
        load_model(tmp_path)


def test_a_model_for_other_records_is_refused_before_a_record_is_read(tmp_path: Path) -> None:
    model = models.model("tabular-2 rows")
    room = room_of(tmp_path, model, models.records((7,), 3), np.zeros(3, np.int32))
    with pytest.raises(InputError, match="another kind, shape or labels"):
        evaluate_private.main(replace_paths(room, tmp_path / "nowhere"))


def test_null_records_are_answered_and_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many records are predicted does not depend on how many are null."""
    seen: list[int] = []
    model, x = models.model("tabular-2 rows"), models.records((6,), 20)
    room = room_of(tmp_path, model, x, np.zeros(20, np.int32), np.arange(20) % 3)
    monkeypatch.setattr(
        Model, "predict_alone", lambda self, records: (seen.append(len(records)), np.zeros(len(records)))[1]
    )
    right = int(evaluate_private.exact_sums(room, model)["right"][0])
    with open_sealed(room, "holdout") as reader:
        lengths = [len(unpack(batch, (6,)).y) for batch in reader]
    assert (seen, right) == (lengths, 13)


MEASURED = [name for name in models.KINDS if "autoencoder" not in name][:4]


def with_measures(room: Room) -> Room:
    asked = room.params.evaluate.model_copy(update={"measures": "all"})
    return replace(room, params=room.params.model_copy(update={"evaluate": asked}))


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("kind", MEASURED)
def test_what_a_record_adds_to_the_measures_has_the_priced_norm(
    kind: str, neighbours: Any, tmp_path: Path
) -> None:
    model = models.model(kind)
    x = models.records(model.shape, N)
    y = (np.arange(N) % len(model.labels)).astype(np.int32)
    reach = {query.purpose: query.sensitivity for query in measured.queries(len(model.labels), neighbours)}

    def sums(x: Any, y: Any, valid: Any = None) -> dict[str, Any]:
        room = with_measures(room_of(tmp_path, model, x, y, valid))
        return evaluate_private.exact_sums(room, model)

    whole = sums(x, y)
    extreme = [np.zeros_like(x[0]), np.full_like(x[0], 255 if x.dtype == np.uint8 else 1), x[3]]
    for place in (0, 5, N - 1):
        others = [sums(x, y, np.arange(N) != place)]
        if neighbours == "replace-one":
            for other in extreme:
                changed, labels = x.copy(), y.copy()
                changed[place], labels[place] = other, (y[place] + 1) % len(model.labels)
                others.append(sums(changed, labels))
        for other in others:
            for purpose, largest in reach.items():
                assert np.linalg.norm((whole[purpose] - other[purpose]).astype(float)) <= largest


def test_a_batch_has_the_measures_of_its_records_one_by_one() -> None:
    """Whoever else is in it, null, or without an answer; and scores of another width are no answers, whatever
    the records are.
    """
    random, classes = np.random.default_rng(0), 11
    scores = random.normal(size=(60, classes)) * 30
    scores[::7], scores[5] = np.nan, 1e308 * (-1) ** np.arange(classes)
    actual, known = random.integers(-1, classes, 60), random.random(60) < 0.8
    known &= actual >= 0
    whole = measured.sums_of(scores, actual, known, classes)
    alone = [
        measured.sums_of(scores[at : at + 1], actual[at : at + 1], known[at : at + 1], classes)
        for at in range(60)
    ]
    for name, total in whole.items():
        assert np.array_equal(total, sum(one[name] for one in alone))
    assert whole["confusion"].sum() == (known & np.isfinite(scores).all(axis=1)).sum()
    narrow = measured.sums_of(scores[:, :3], actual, known, classes)
    assert not narrow["confusion"].any() and narrow["brier"][0] == known.sum() * measured.BRIER


def test_measures_of_a_private_evaluation_are_near_the_exact_ones(tmp_path: Path) -> None:
    from airlock.models.measures import measures

    generator = np.random.default_rng(0)
    x = generator.random((4000, 3))
    y = (x[:, 0] + 0.3 * generator.normal(size=4000) > 0.5).astype(np.int32)
    weights = np.zeros((3, 2))
    weights[0] = [-6.0, 6.0]
    model = Model("tabular-2", "tabular", (3,), ("no", "yes"), [], [(weights, np.zeros(2))])
    room = with_measures(room_of(tmp_path, model, x, y))
    evaluate_private.main(room)
    found = json.loads((tmp_path / "out/evaluation.json").read_text())
    exact = measures(model.logits(x), y.astype(np.int64))
    assert found["accuracy"] == pytest.approx((model.predict(x) == y).mean(), abs=0.05)
    for name, within in {"balanced_accuracy": 0.05, "f1": 0.05, "auc": 0.06, "brier": 0.05}.items():
        assert found["measures"][name] == pytest.approx(exact[name], abs=within)
        assert found["measures"][name] != exact[name]
