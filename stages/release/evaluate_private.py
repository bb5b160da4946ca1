"""The private evaluation: how many of the sealed holdout records a model gets right, as a release of its own.

One record moves the count of right answers by at most 1, under zero-out and under replace-one: whether it is
answered rightly is a function of that record and the model, for records are looked at one by one
(docs/proofs/evaluation.md#count). The model was made without these records, and is checked before the first
of them is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError, ParamsError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features import encoder
from airlock.models.model import Model
from airlock.params import Params, ReleaseParams
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import unpack
from airlock.storage import load_model, write_json
from stages.release import judged_numbers, measured
from stages.release.noisy_sums import NoisySums, Priced, Query, guarantee, price
from stages.release.perturb import facts_of, open_sealed
from stages.release.units import moved_records, records_per_unit

Integers = NDArray[np.int64]
EVALUATION = "data/released/evaluation"
NAME, VERSION = "evaluation", 1
ARGUMENT, MEASURES_ARGUMENT = "docs/proofs/evaluation.md#count", "docs/proofs/evaluation.md#measures"
NOT_PRIVATE = (
    "evaluate.holdout is '{holdout}': set it to private in params.yaml and run `dvc repro` before "
    "evaluating on sealed records"
)

OTHER_RECORDS = (
    "data/model is for records of another kind, shape or labels: run `dvc repro train` (with train.target null) "
    "and evaluate again"
)

NO_CLASSES = (
    "data/model reconstructs records and has no classes to measure: set evaluate.measures to accuracy in "
    "params.yaml"
)


def plans(params: Params, facts: Facts) -> dict[str, Plan]:
    """One noisy count, at the price that the section `evaluate` names."""
    if params.evaluate.holdout != "private" or facts.n_holdout == 0:
        raise ParamsError(NOT_PRIVATE.format(holdout=params.evaluate.holdout))
    whole = params.evaluate.measures == "all" and facts.number is None
    argument = judged_numbers.ARGUMENT if facts.number else MEASURES_ARGUMENT if whole else ARGUMENT
    proven = guarantee(_priced(params, facts), _terms(params), argument=argument)
    parameters = {
        "epsilon": params.evaluate.epsilon,
        "delta": params.evaluate.delta,
        "records": facts.n_holdout,
        **moved_records(params, facts),
        **({"measures": measured.SHARES} if whole else {}),
    }
    return {EVALUATION: Plan(NAME, VERSION, parameters, passes=1, proven=proven)}


def check_model(room: Room) -> bool:
    """Whether the model can be judged on such records: asked before anything is reserved.

    Raises:
        InputError: it cannot.
    """
    fitting_model(room, Facts.from_json(room.facts["facts"]))
    return True


def main(room: Room) -> None:
    """Count, add noise, write accuracy with its standard error, and what else was asked for."""
    encoder.look_in(room.paths)
    facts = facts_of(room)
    priced = plans(room.params, facts)[EVALUATION]
    order = room.facts["releases"][EVALUATION]
    noisy_sums = NoisySums(
        _priced(room.params, facts), key=room.keys[f"noise:{EVALUATION}"], release_id=order["id"]
    )
    model = fitting_model(room, facts)
    for purpose, exact in exact_sums(room, model).items():
        noisy_sums.add_noise(purpose, exact)
    folder = room.path(EVALUATION)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"records": facts.n_holdout, **_figures(noisy_sums, facts)}
    write_json(folder / "evaluation.json", figures)
    manifest.write(
        folder, plan=priced, facts=facts, release_id=order["id"], details={"sums": noisy_sums.details()}
    )


def _figures(noisy_sums: NoisySums, facts: Facts) -> dict[str, Any]:
    released, terms = noisy_sums.released, noisy_sums.priced
    if facts.number:
        return judged_numbers.figures(released["errors"], terms["errors"].scale, facts.number)
    if "right" in released:
        return accuracy(int(released["right"][0]), terms["right"].scale, facts.n_holdout)
    return measured.figures(released, terms, facts.n_holdout, facts.labels)


def fitting_model(room: Room, facts: Facts) -> Model:
    """The model, once it is known to be one, and one for such records.

    Raises:
        InputError: it is not.
    """
    model = load_model(room.path("data/model"))
    known = (facts.kind, facts.shape, facts.labels, facts.number)
    if (model.kind, model.shape, model.labels, model.number) != known:
        raise InputError(OTHER_RECORDS)
    if room.params.evaluate.measures == "all" and getattr(model, "reconstructs", False):
        raise InputError(NO_CLASSES)
    return model


def accuracy(right: int, scale: float, records: int) -> dict[str, Any]:
    """From a noisy count of right answers."""
    return {
        "right": right,
        "accuracy": min(1.0, max(0.0, right / records)),
        "noise_of_accuracy": scale / records,
    }


def exact_sums(room: Room, model: Model) -> dict[str, Integers]:
    """What is priced, over the valid holdout records, exactly. It goes no further than the noise.

    Null records are answered like any other and masked afterwards, so that nothing before the sum knows how
    many there are.
    """
    whole, total = room.params.evaluate.measures == "all", dict[str, Integers]()
    with open_sealed(room, "holdout") as reader:
        for batch in reader:
            encoded = unpack(batch, model.shape)
            known = (encoded.valid > 0) & (encoded.y >= 0)
            actual = encoded.y.astype(np.int64)
            if model.number:
                part = judged_numbers.sums_of(model.scores_alone(encoded.x), actual, known, model.number)
            elif whole:
                part = measured.sums_of(model.scores_alone(encoded.x), actual, known, len(model.labels))
            else:
                right = (model.predict_alone(encoded.x) == actual) & known
                part = {"right": np.array([right.sum()], np.int64)}
            total = {name: total[name] + value if name in total else value for name, value in part.items()}
    return total


def _terms(params: Params) -> ReleaseParams:
    """The terms of the evaluation, in the form of a release's."""
    release: dict[str, Any] = {"epsilon": params.evaluate.epsilon, "delta": params.evaluate.delta}
    return ReleaseParams(**release, neighbours=params.release.neighbours, unit=params.release.unit)


def _priced(params: Params, facts: Facts) -> list[Priced]:
    if facts.number:
        asked = judged_numbers.queries()
    elif params.evaluate.measures == "all":
        asked = measured.queries(len(facts.labels), params.release.neighbours)
    else:
        asked = [Query("right", 1, 1.0, "gaussian", 1, share=1.0)]
    unit = records_per_unit(params, facts)
    return price([query.of_unit(unit) for query in asked], _terms(params))
