"""`coefficients-iterated`: coefficients, then residual rounds that each read the records once more
(docs/mechanism.md).

A round releases S = sum a r^T, where r = y - softmax(a W) is clipped to norm C, and moves W by 2 M (G + ridge)^-1 S:
a damped Newton step of the logistic loss, whose Hessian at the start is G / M (the 2 makes up for what clipping
takes away). Of pictures a step is half that, and 0.7 of the step before goes on with it. Reads depend on the model
being trained, so it is interactive. Rows have norm at most 1, residuals at most the clip C (0.2; sqrt(0.32 / M) for
tables by the rule of airlock/models/features/choice.py): S has L2 sensitivity C under zero-out. The last round may
ask besides how often the head is right, less how sure it is of that (airlock/models/sureness.py): sensitivity 2 for
four factors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from airlock.errors import ParamsError
from airlock.models import sureness
from airlock.models.features.choice import clip_for, settle
from airlock.models.features.rows import LIMIT
from airlock.models.features.softmax import BOUND
from airlock.models.moments import Moments, closed_form, damping, moments_of
from airlock.params import Params, Section, check
from airlock.privacy import sensitivity
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.mechanisms import coefficients, geometry, numbers, public_rounds, recipes
from stages.release.mechanisms.coefficients import finish, release_moments
from stages.release.mechanisms.heads import Head
from stages.release.mechanisms.recipes import FIRST, Recipe
from stages.release.mechanisms.residuals import Residuals
from stages.release.noisy_sums import Divided, NoisySums, Query, divide, guarantee
from stages.release.passes import Records

NAME, VERSION = "coefficients-iterated", 1
ARGUMENT = "docs/proofs/coefficients.md#residual-rounds"
ROUNDS = 10
CLIP = 0.2
USUAL = {"step": 2.0, "momentum": 0.0, "rounds": ROUNDS}
PICTURES = {"step": 1.0, "momentum": 0.7, "rounds": 14}
"""Of tables, and of pictures: docs/mechanism.md says how they were chosen."""
# The least-squares head times M minimises the logistic loss to second order; a little less is a safer start.
START = 0.8


class Options(Section):
    """release.options of `coefficients-iterated`.

    Shares are of mu squared; what they leave goes to the rounds, in equal parts. `ridge` is in units of the
    radius of the Gram matrix's noise, `even_ridge` in units of the rows' mean eigenvalue n / width. `rounds` is for
    release.passes auto. For tables `auto` sets some of these by public facts (airlock/models/features/choice.py).
    With another preparation there are others: stages/release/mechanisms/public_rounds.py.
    """

    preparation: Literal["private"] = "private"
    mean_share: float = Field(0.03, gt=0, lt=1)
    whitening_share: float = Field(0.15, gt=0, lt=1)
    gram_share: float = Field(0.10, gt=0, lt=1)
    cross_share: float = Field(0.05, gt=0, lt=1)
    whitening_ridge: float = Field(0.3, ge=1e-6, le=1e6)
    ridge: float = Field(0.3, ge=1e-6, le=1e6)
    clip: float | None = Field(None, ge=1e-6, le=2)
    step: float | None = Field(None, gt=0, le=1e3)
    momentum: float | None = Field(None, ge=0, lt=1)
    rounds: int | None = Field(None, ge=1, le=100)
    shrunk_centre: bool = False
    even_ridge: float = Field(0.0, ge=0, le=1e6)
    sureness_share: float = Field(0.0, ge=0, lt=1)

    whitening: bool = True
    """False: noise does not follow the geometry, whose share goes to the rounds."""


class Settled(Options):
    """The same options, with a clip (by the number of classes on the hybrid map, 0.2 on any other), and with step,
    momentum and rounds, by the kind of records.
    """

    clip: float = Field(ge=1e-6, le=2)
    step: float = Field(gt=0, le=1e3)
    momentum: float = Field(ge=0, lt=1)
    rounds: int = Field(ge=1, le=100)

    def newer(self) -> dict[str, float]:
        """What shapes the rounds and was not always there, so that ids without it are what they were."""
        said = {"even_ridge": self.even_ridge, "momentum": self.momentum}
        return {name: value for name, value in said.items() if value}


AnyOptions = Settled | numbers.Options | public_rounds.Settled


def resolve(params: Params, facts: Facts) -> tuple[Recipe, AnyOptions, int]:
    """The recipe of the first passes, the options, and the number of rounds."""
    if public_rounds.is_wanted(params, facts):
        return public_rounds.resolve(params, facts)
    where = "params.yaml: release.options"
    params = settle(params, facts)
    options: Options | numbers.Options
    options = (
        check(numbers.Options, params.release.options, where)
        if facts.number
        else check(Options, params.release.options, where)
    )
    settled = options if isinstance(options, numbers.Options) else _settled(options, params, facts)
    first = params.model_copy(
        update={"release": params.release.model_copy(update={"passes": "auto", "options": _first(options)})}
    )
    recipe = recipes.resolve(first, facts)
    wished = settled.rounds if isinstance(settled, Settled) else ROUNDS
    passes = recipe.passes + wished if params.release.passes == "auto" else params.release.passes
    rounds = passes - recipe.passes
    if not 1 <= rounds <= 100:
        raise ParamsError(
            f"params.yaml: release.passes {passes} is not offered by '{NAME}': use auto or "
            f"{recipe.passes + 1} and more"
        )
    wanted = {
        "mean": options.mean_share,
        "quantiles": recipes.QUANTILES_SHARE if recipe.columns else 0.0,
        "whitening": options.whitening_share if "whitening" in recipe.shares else 0.0,
        "gram": options.gram_share,
        "cross": options.cross_share,
        "level": recipes.LEVEL_SHARE if facts.number else 0.0,
        "sureness": options.sureness_share if isinstance(options, Options) else 0.0,
    }
    rest = 1.0 - sum(wanted.values())
    if rest <= 0:
        raise ParamsError(
            "params.yaml: release.options: the shares must sum to less than 1, for the rounds need one too"
        )
    wanted |= {f"residuals-{index + 1}": rest / rounds for index in range(rounds)}
    left = recipes.left_by_relevance(params)
    shares = {purpose: share * left for purpose, share in wanted.items() if share > 0}
    shrunk = isinstance(options, Options) and options.shrunk_centre
    return replace(recipe, shares=shares, ridge=options.whitening_ridge, shrunk=shrunk), settled, rounds


def _first(options: Options | numbers.Options) -> dict[str, bool]:
    """What of the options shapes the passes before the rounds."""
    return {"whitening": options.whitening} if isinstance(options, Options) else {}


def _settled(options: Options, params: Params, facts: Facts) -> Settled:
    clip = clip_for(len(facts.labels)) if params.release.features.startswith("hybrid-") else CLIP
    usual = PICTURES if facts.kind == "image" else USUAL
    return Settled.model_validate({"clip": clip, **usual, **options.model_dump(exclude_none=True)})


def queries(recipe: Recipe, params: Params, rounds: int, options: AnyOptions | None = None) -> list[Query]:
    """The noisy sums of all passes, in order."""
    near = params.release.neighbours
    if isinstance(options, numbers.Options):
        asked = numbers.queries(recipe, near, rounds, options.spread_share)
    else:
        bound, cells = sensitivity.bounded_cross(LIMIT, BOUND, neighbours=near), recipe.size * recipe.classes
        names = [f"residuals-{index + 1}" for index in range(rounds)]
        asked = [
            Query(name, recipe.passes + place, bound, "gaussian", cells, recipe.shares[name])
            for place, name in enumerate(names, start=1)
        ]
        if share := recipe.shares.get("sureness"):
            reach, last = sensitivity.mean(sureness.norm(), neighbours=near), recipe.passes + rounds
            asked.append(Query("sureness", last, reach, "gaussian", len(sureness.FACTORS), share))
    return [*recipes.queries(recipe, params), *(query.of_unit(recipe.per_unit) for query in asked)]


def _divided(params: Params, facts: Facts) -> tuple[Recipe, AnyOptions, int, Divided]:
    recipe, options, rounds = resolve(params, facts)
    return (
        recipe,
        options,
        rounds,
        divide(queries(recipe, params, rounds, options), FIRST, params, parts=FIRST),
    )


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe, options, rounds, divided = _divided(params, facts)
    argument = numbers.ARGUMENT if recipe.number else ARGUMENT
    if isinstance(options, public_rounds.Settled):
        argument = public_rounds.ARGUMENT
    proven = guarantee(divided.later, params.release, argument=argument)
    named = (
        {"clip": options.clip, "ridge": options.ridge, "step": options.step, **options.newer()}
        if isinstance(options, Settled)
        else options.named()
    )
    parameters = {**coefficients.parameters(recipe, params, divided), **named}
    passes = recipe.passes + rounds - divided.passes
    return Plan(NAME, VERSION, parameters, passes=passes, proven=proven, interactive=True)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the geometry, as `coefficients` has it; no round changes it."""
    recipe, _, _, divided = _divided(params, facts)
    return geometry.plan(recipe, params, divided)


@makes
def make_relevance(given: Given) -> Released:
    """Read the records and release their geometry."""
    recipe, _, _, divided = _divided(given.params, given.facts)
    return geometry.release(recipe, divided, given)


@makes
def make(given: Given) -> Released:
    """Read the records, pass by pass, and release coefficients and the last head."""
    params, facts = given.params, given.facts
    recipe, options, rounds, divided = _divided(params, facts)
    noisy_sums = NoisySums(divided.later, key=given.key, release_id=given.release_id)
    records = recipes.open_records(recipe, facts, given.reader, given.connection, given.release_id)
    if isinstance(options, public_rounds.Settled):
        return public_rounds.run(recipe, divided, records, noisy_sums, options, rounds, given)
    level = geometry.prepare(recipe, divided, records, noisy_sums, given)
    release_moments(recipe, records, noisy_sums, level)
    told = {"sums": noisy_sums.details(), **coefficients.said_of_number(recipe, level)}
    moments = moments_of(noisy_sums.released, told, facts.n)
    head, sizes = (
        numbers.run(records, noisy_sums, moments, options, rounds, given, level)
        if isinstance(options, numbers.Options)
        else _rounds(records, noisy_sums, moments, options, rounds, given)
    )
    tensors, details = finish(recipe, records, noisy_sums, recipe.passes + rounds - divided.passes, level)
    # Only beside a first release: what one stage released before says of itself what it always said.
    curve = {"residuals": sizes} if divided.first or recipe.number else {}
    sure = {name: noisy_sums.released[name] for name in ["sureness"] if name in recipe.shares}
    return {**tensors, **sure, "head": head.integers}, {**details, "head_unit": head.unit, **curve}


def _rounds(
    records: Records, noisy_sums: NoisySums, moments: Moments, options: Settled, rounds: int, given: Given
) -> tuple[Head, list[float]]:
    """The last head, and what was left unexplained before each round."""
    classes, sizes = moments.cross.shape[1], list[float]()
    ridge = damping(moments, options.ridge, options.even_ridge)
    head = Head.of(START * classes * closed_form(moments, ridge))
    moving = np.zeros_like(head.weights)
    for index in range(rounds):
        given.tick(index, rounds)
        last = index == rounds - 1 and "sureness" in noisy_sums.priced
        exact = records.ask(Residuals(head, options.clip, last))
        noisy = noisy_sums.add_noise(f"residuals-{index + 1}", exact["residuals"]).astype(np.float64) * (
            options.clip / (LIMIT * BOUND)
        )
        if last:
            noisy_sums.add_noise("sureness", exact["sureness"])
        sizes.append(float(np.linalg.norm(noisy)) / given.facts.n)
        moving = options.momentum * moving + options.step * classes * moments.solve(noisy, ridge)
        head = Head.of(head.weights + moving)
    return head, sizes
