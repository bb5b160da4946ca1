"""`coefficients`: noisy degree-2 loss coefficients on fixed features (the proof is
docs/proofs/coefficients.md).

One pass releases the coefficients themselves: the Gram matrix G = sum a a^T and the cross moments B = sum a
(M e_y - 1)^T of the rows. Two passes release the sum of rows first, and centre by it; three also a first Gram
matrix, and whiten by it. What comes first is the geometry that the noise of the coefficients then follows: it
is released by the stage `relevance`, as noisy sums. No pass depends on a trained model. Rows have norm at most
1: under zero-out the sum of rows and G have L2 sensitivity 1, and B has sqrt(M (M - 1)). Of a label that is a
number B is sum a t, with t from -1 to 1 between its bounds: sensitivity 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError, ReleaseError
from airlock.inside.connection import Exchange
from airlock.inside.sealed import SealedReader
from airlock.models.features import columns as table_columns
from airlock.models.features import features, public, quantiles
from airlock.models.features.choice import settle
from airlock.models.features.hybrid import runs_of
from airlock.models.features.projection import centre, tensors_of, whiten
from airlock.models.features.quantiles import BINS
from airlock.models.features.rows import LIMIT
from airlock.models.numbers import HALF, level_of
from airlock.params import Params, Section, check
from airlock.privacy import sensitivity, weighing
from airlock.privacy.continual import Strategy
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release import nightly_prices, running_totals
from stages.release.cluster import Cluster
from stages.release.nightly_prices import Nightly
from stages.release.noisy_sums import (
    Divided,
    NoisySums,
    Priced,
    Query,
    budget_of,
    check_size,
    divide,
    guarantee,
)
from stages.release.passes import HALF_AVERAGE, Kind, Records, Wanted
from stages.release.units import check_local, moved_records, records_per_unit
from stages.release.weighted_totals import WeightedTotals

NAME, VERSION = "coefficients", 2
ARGUMENT = "docs/proofs/coefficients.md#guarantee"
GEOMETRY_ARGUMENT = "docs/proofs/relevance.md#geometry"
# Of mu squared, by number of passes; what is left goes to the cross moments. docs/mechanism.md says how they
# were chosen.
MEAN_SHARE = {2: 0.05, 3: 0.03}
WHITENING_SHARE = {3: 0.30}
GRAM_SHARE = {1: 0.25, 2: 0.15, 3: 0.32}
PREPARED_GRAM_SHARE = 0.48
"""Over nights whose geometry is public."""
COLUMNS_SHARE = 0.4
"""Over nights that tell the columns: until rows are whitened by these."""
QUANTILES_SHARE = 0.15
MOST_AVERAGED = 64
"""Columns of a table of which nights tell averages; of a wider one they tell those of the classes alone."""
LEVEL_SHARE = 0.02
"""Of a number, where it lies: asked beside the mean of the rows."""
GEOMETRY, GEOMETRY_VERSION = "geometry", 1
FIRST = {"quantiles": 10.0, "mean": 1.0, "level": 0.7, "whitening": 10.0}
"""What the stage `relevance` asks, and the parts of a price that is set for it."""


class Options(Section):
    """release.options of `coefficients`; None means the default for the number of passes."""

    mean_share: float | None = Field(None, gt=0, lt=1)
    whitening_share: float | None = Field(None, gt=0, lt=1)
    gram_share: float | None = Field(None, gt=0, lt=1)
    whitening_ridge: float = Field(0.3, ge=1e-6, le=1e6)
    whitening: bool = True
    """False: noise does not follow the geometry, as with passes 2; what it would cost goes to the rest."""
    strategy: Literal["auto", "square-root"] = "auto"
    """Over many nights: weighted totals, or as horizons were released at first."""
    geometry: Literal["auto", "public"] = "auto"
    """Over many nights of a table of numbers: from its columns, or as horizons were released before that."""


@dataclass(frozen=True)
class Recipe:
    """Everything that shapes the released bytes, resolved from parameters and public facts."""

    features: str
    width: int
    bias: int
    classes: int
    passes: int
    shares: dict[str, float]
    ridge: float
    per_unit: int
    moved: dict[str, Any] = field(default_factory=dict)
    number: tuple[float, float] | None = None
    strategy: Strategy | None = None
    columns: tuple[int, ...] = ()
    shrunk: bool = False
    nights: int = 0
    averaged: int = 0
    prepared: bool = False
    tells_columns: bool = False

    @property
    def size(self) -> int:
        """Length of a row after centring."""
        return self.width + (self.bias > 0)


def resolve(params: Params, facts: Facts, options: Options | None = None) -> Recipe:
    """Settle what `auto` means. Over many nights the first one's facts decide it for all."""
    options = options or check(Options, params.release.options, "params.yaml: release.options")
    params = settle(params, facts)
    heaviest = weighing.MOST if params.release.horizon and options.strategy == "auto" else 1
    check_size(facts.total, LIMIT * max(LIMIT, len(facts.labels)) * heaviest)
    name = params.release.features
    check_engine(params)
    feature_map = features.feature_map(name, facts.kind, facts.shape)
    whitened = feature_map.whitened and options.whitening
    passes = (3 if whitened else 2) if params.release.passes == "auto" else params.release.passes
    prepared = whitened and is_prepared(params, options)
    if prepared:
        passes = 1
    tells_columns = prepared and options.geometry == "auto" and table_columns.is_offered(name, MOST_AVERAGED)
    columns = numbers_of(params, facts)
    if passes == 3 and not options.whitening:
        raise ParamsError(
            "params.yaml: release.options: whitening false leaves two passes: set release.passes to auto"
        )
    if passes not in GRAM_SHARE:
        raise ParamsError(
            f"params.yaml: release.passes {passes} is not offered by '{NAME}': use auto, 1, 2 or 3"
        )
    strategy = running_totals.strategy_of(params, facts, passes)
    nights = params.release.horizon or 0
    if strategy and options.strategy == "auto":
        strategy = None
        nightly_prices.check(params)
    else:
        nights = 0
    left = 1.0 - (COLUMNS_SHARE if tells_columns else 0.0)
    wanted = {
        "columns": 1.0 - left,
        "mean": options.mean_share or MEAN_SHARE[passes] if passes in MEAN_SHARE else 0.0,
        "whitening": options.whitening_share or WHITENING_SHARE[passes] if passes in WHITENING_SHARE else 0.0,
        "gram": left * (options.gram_share or (PREPARED_GRAM_SHARE if prepared else GRAM_SHARE[passes])),
        "level": LEVEL_SHARE if facts.number and passes > 1 else 0.0,
        "quantiles": QUANTILES_SHARE if columns else 0.0,
    }
    return Recipe(
        name,
        feature_map.width,
        feature_map.bias,
        len(facts.labels),
        passes + bool(columns),
        _shares(wanted, params),
        options.whitening_ridge,
        records_per_unit(params, facts),
        moved_records(params, facts),
        facts.number,
        strategy,
        columns,
        nights=nights,
        averaged=facts.shape[0]
        if nights and facts.kind == "tabular" and facts.shape[0] <= MOST_AVERAGED
        else 0,
        prepared=prepared,
        tells_columns=tells_columns,
    )


def is_prepared(params: Params, options: Options) -> bool:
    """Whether rows of many nights are whitened at first by what the map's name says: where that is enough, and nobody
    asked for a geometry of the first night's records (release.passes 3, or a share for it).
    """
    release = params.release
    asked = release.passes != "auto" or options.mean_share or options.whitening_share
    nightly = release.horizon is not None and options.strategy == "auto"
    return nightly and not asked and public.is_known(release.features)


def check_engine(params: Params) -> None:
    """Refuse an encoder that the workers of a cluster do not have.

    Raises:
        ParamsError: release.engine is not local.
    """
    if params.release.features.startswith("onnx:"):
        check_local(params, "onnx:FILE")


def numbers_of(params: Params, facts: Facts) -> tuple[int, ...]:
    """Encoded columns that go through their quantiles: plain numbers and dates, where that is asked.

    Raises:
        ParamsError: there are none, a cluster should count them, or they would be of the first night only.
    """
    if not params.relevance.quantiles:
        return ()
    alone = params.release.engine == "local" and params.release.horizon is None
    if facts.kind != "tabular" or not alone or params.relevance.weighs:
        raise ParamsError(
            "params.yaml: relevance.quantiles is for tables, release.engine local, release.horizon null and "
            "relevance.mode auto or off: set it to false"
        )
    layout = facts.layout or f"nx{facts.shape[0]}"
    kinds = [run.kind for run in runs_of(layout) for _ in range(run.encoded)]
    found = tuple(place for place, kind in enumerate(kinds) if kind == "n")
    if not found:
        raise ParamsError("params.yaml: relevance.quantiles: no column is a number: set it to false")
    return found


def _shares(wanted: dict[str, float], params: Params) -> dict[str, float]:
    """Shares of what relevance leaves of the budget; the cross moments get the rest."""
    rest = 1.0 - sum(wanted.values())
    if rest <= 0:
        raise ParamsError(
            "params.yaml: release.options: the shares must sum to less "
            "than 1, for the cross moments need one too"
        )
    left = left_by_relevance(params)
    return {purpose: share * left for purpose, share in {**wanted, "cross": rest}.items() if share > 0}


def left_by_relevance(params: Params) -> float:
    """The share of mu squared that a release of weights leaves, less what rounding could add to the shares
    of the two releases.
    """
    return 1.0 - params.relevance.weighing_share - 2.0**-50 if params.relevance.weighs else 1.0


def queries(recipe: Recipe, params: Params) -> list[Query]:
    """The noisy sums of the passes, in order."""
    near, size, classes = params.release.neighbours, recipe.size, recipe.classes
    triangle = size * (size + 1) // 2
    mean, gram = sensitivity.mean(LIMIT, neighbours=near), sensitivity.gram(LIMIT, neighbours=near)
    cross = (
        sensitivity.bounded_cross(LIMIT, HALF, neighbours=near)
        if recipe.number
        else sensitivity.cross(LIMIT, labels="centred", classes=classes, neighbours=near)
    )
    columns, first = len(recipe.columns), 1 + bool(recipe.columns)
    asked = (
        Query("quantiles", 1, sensitivity.histograms(columns, neighbours=near), "gaussian", columns * BINS),
        Query("mean", first, mean, "gaussian", recipe.width),
        Query("level", first, sensitivity.mean(HALF, neighbours=near), "gaussian", 1),
        Query("whitening", first + 1, gram, "symmetric-gaussian", triangle),
        Query("columns", 1, gram, "symmetric-gaussian", (recipe.averaged + 1) * (recipe.averaged + 2) // 2),
        Query("gram", recipe.passes, gram, "symmetric-gaussian", triangle),
        Query("cross", recipe.passes, cross, "gaussian", size * classes),
    )
    return [
        (query if query.purpose in FIRST else query.over_nights(recipe.strategy))
        .of_unit(recipe.per_unit)
        .with_share(recipe.shares[query.purpose])
        for query in asked
        if query.purpose in recipe.shares
    ]


def nightly(recipe: Recipe, params: Params) -> Nightly:
    """What the nights of a horizon ask: the first one as any release does, and averages beside it."""
    averages = Query(
        nightly_prices.AVERAGES,
        recipe.passes,
        sensitivity.averages(recipe.averaged, HALF_AVERAGE, neighbours=params.release.neighbours),
        "gaussian",
        recipe.averaged + recipe.classes,
    ).of_unit(recipe.per_unit)
    asked = [
        replace(
            query.with_share(query.share * (1 - nightly_prices.AVERAGES_SHARE)),
            draws=query.draws * (1 if query.purpose in FIRST else recipe.nights),
        )
        for query in queries(recipe, params)
    ]
    averages = replace(averages, draws=averages.draws * recipe.nights).with_share(
        nightly_prices.AVERAGES_SHARE
    )
    mu = budget_of([*asked, averages], params.release)
    turned = recipe.prepared or "whitening" in recipe.shares
    told = recipe.features if recipe.tells_columns else ""
    return Nightly((*asked, averages), mu, recipe.nights, turned, prepared=recipe.prepared, columns=told)


def plan_night(recipe: Recipe, params: Params, facts: Facts) -> Plan:
    """The price of all nights; how often records are read is of this one."""
    asked = nightly(recipe, params)
    dearest = asked.dearest()
    running_totals.check_scales(asked.priced(asked.nights), recipe.nights)
    first = facts.night_number == 1
    horizon = {
        "nights": recipe.nights,
        "strategy": weighing.NAME,
        "averages": recipe.averaged + recipe.classes,
    }
    known = "columns" if recipe.tells_columns else "public"
    said = {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "features": recipe.features,
        "shares": {query.purpose: query.share for query in asked.queries},
        **({"geometry": known} if recipe.prepared else {"whitening_ridge": recipe.ridge}),
        **recipe.moved,
        "horizon": horizon,
    }
    proven = guarantee(dearest, params.release, argument=nightly_prices.ARGUMENT)
    return Plan(NAME, VERSION, said, passes=recipe.passes if first else 1, proven=proven)


def make_night(recipe: Recipe, given: Given) -> Released:
    """One night of many: its own records, once (the first one as often as any release), and what was told before."""
    nights = given.nights or running_totals.alone(given, recipe.nights)
    running_totals.check_night(nights, given.facts, recipe.nights)
    totals = WeightedTotals(
        nightly(recipe, given.params), nights, given.facts, key=given.key, release_id=given.release_id
    )
    records = open_records(recipe, given.facts, given.reader, given.connection, given.release_id)
    if nights.former is None and recipe.prepared:
        records.steps.extend(public.preparation(recipe.features, given.facts.shape))
    elif nights.former is None:
        ask_geometry(recipe, given.facts.n, records, totals)
    else:
        records.steps.extend(totals.steps(recipe.bias))
    kinds: tuple[Kind, ...] = ("columns", "gram", "cross", "averages")
    asked: dict[str, Kind] = {kind: kind for kind in kinds if kind in totals.priced}
    sums = records.ask(Wanted(asked, recipe.classes, columns=recipe.averaged))
    for purpose in asked:
        totals.add_noise(purpose, sums[purpose])
    check_passes(records, recipe.passes if nights.former is None else 1)
    tensors, said = totals.tell(records.steps)
    return tensors, {"features": recipe.features, "bias": recipe.bias, "limit": LIMIT, **said}


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe = resolve(params, facts)
    if recipe.nights:
        return plan_night(recipe, params, facts)
    divided = divide(queries(recipe, params), FIRST, params, parts=FIRST)
    argument = running_totals.ARGUMENT if recipe.strategy else ARGUMENT
    running_totals.check_scales(divided.later, recipe.strategy)
    proven = guarantee(divided.later, params.release, argument=argument)
    passes = recipe.passes - divided.passes
    return Plan(NAME, VERSION, parameters(recipe, params, divided), passes=passes, proven=proven)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the geometry: of the mean, and of the first Gram matrix where rows are whitened."""
    recipe = resolve(params, facts)
    if recipe.nights:
        return None  # the first night asks it itself
    return geometry(recipe, params, divide(queries(recipe, params), FIRST, params, parts=FIRST))


def geometry(recipe: Recipe, params: Params, divided: Divided, **more: Any) -> Plan | None:
    """What is asked first, as a release of its own.

    Its id hashes its noise, not shares of a whole: the rest of the budget can be spent in any way.
    """
    if not divided.first:
        return None
    parameters = {
        "features": recipe.features,
        "multipliers": {one.query.purpose: one.multiplier for one in divided.first},
        "delta": params.release.delta,
        **more,
        **recipe.moved,
        **({"quantiles": list(recipe.columns)} if recipe.columns else {}),
    }
    proven = guarantee(divided.first, params.release, argument=GEOMETRY_ARGUMENT)
    return Plan(GEOMETRY, GEOMETRY_VERSION, parameters, passes=divided.passes, proven=proven)


def parameters(recipe: Recipe, params: Params, divided: Divided) -> dict[str, Any]:
    """What the release id hashes. What was asked first has an id of its own, which is hashed beside this."""
    first = {one.query.purpose for one in divided.first}
    return {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "features": recipe.features,
        "shares": {purpose: share for purpose, share in recipe.shares.items() if purpose not in first},
        "whitening_ridge": recipe.ridge,
        "relevance": params.relevance.mode,
        **recipe.moved,
        **running_totals.parameters(recipe.strategy),
        **({"quantiles": list(recipe.columns), "levels": "likely"} if recipe.columns else {}),
        **({"centre": "shrunk"} if recipe.shrunk else {}),
    }


@makes
def make(given: Given) -> Released:
    """Read the records and release their coefficients: integer tensors, and what a reader must know about
    them.
    """
    params, facts = given.params, given.facts
    recipe = resolve(params, facts)
    if recipe.nights:
        return make_night(recipe, given)
    divided = divide(queries(recipe, params), FIRST, params, parts=FIRST)
    noisy_sums = running_totals.noisy_sums(divided.later, recipe.strategy, given)
    records = open_records(recipe, facts, given.reader, given.connection, given.release_id)
    level = prepare(recipe, divided, records, noisy_sums, given)
    release_moments(recipe, records, noisy_sums, level)
    return finish(recipe, records, noisy_sums, recipe.passes - divided.passes, level)


@makes
def make_relevance(given: Given) -> Released:
    """Read the records and release their geometry, as noisy sums: whoever builds on it centres and whitens
    by them.
    """
    recipe = resolve(given.params, given.facts)
    divided = divide(queries(recipe, given.params), FIRST, given.params, parts=FIRST)
    return release_geometry(recipe, divided, given)


def release_geometry(recipe: Recipe, divided: Divided, given: Given) -> Released:
    """The noisy sums of what is asked first."""
    noisy_sums = NoisySums(divided.first, key=given.key, release_id=given.release_id)
    records = open_records(recipe, given.facts, given.reader, given.connection, given.release_id)
    ask_geometry(recipe, given.facts.n, records, noisy_sums)
    return finish_relevance(recipe, records, noisy_sums, divided)


def finish_relevance(recipe: Recipe, records: Records, noisy_sums: NoisySums, divided: Divided) -> Released:
    """What was asked first, once the passes are as many as were priced."""
    check_passes(records, divided.passes)
    said = {"features": recipe.features, "bias": recipe.bias, "limit": LIMIT}
    return dict(noisy_sums.released), {**said, "sums": noisy_sums.details(shares=False)}


def open_records(
    recipe: Recipe,
    facts: Facts,
    reader: SealedReader,
    connection: Exchange | None = None,
    release_id: str = "",
) -> Records:
    """The sealed records through the recipe's feature map, here or (with a connection) on the workers of a
    cluster.
    """
    elsewhere = (
        Cluster(connection, release_id, facts, recipe.features, recipe.bias, reader.chunks).ask
        if connection
        else None
    )
    return Records(
        reader,
        features.feature_map(recipe.features, facts.kind, facts.shape),
        facts.shape,
        elsewhere=elsewhere,
    )


def check_passes(records: Records, priced: int) -> None:
    """Records are read as often as was priced.

    Raises:
        ReleaseError: they were not.
    """
    if records.passes != priced:
        raise ReleaseError(f"the records were read {records.passes} times, but {priced} passes were priced")


def finish(recipe: Recipe, records: Records, noisy_sums: NoisySums, passes: int, level: int = 0) -> Released:
    """The released tensors and details, once the passes are as many as were priced."""
    check_passes(records, passes)
    # Centre and whitening matrix follow from the noisy sums of the first passes, which nobody needs besides.
    tensors = {
        **tensors_of(records.steps),
        **quantiles.tensors_of(records.before),
        "gram": noisy_sums.released["gram"],
        "cross": noisy_sums.released["cross"],
    }
    return tensors, {
        "features": recipe.features,
        "bias": recipe.bias,
        "limit": LIMIT,
        "sums": noisy_sums.details(),
        **said_of_number(recipe, level),
    }


def said_of_number(recipe: Recipe, level: int) -> dict[str, Any]:
    """What a reader must know about a label that is a number: its bounds, and what was taken off it."""
    return {"number": list(recipe.number), "level": level} if recipe.number else {}


def prepare(recipe: Recipe, divided: Divided, records: Records, noisy_sums: NoisySums, given: Given) -> int:
    """The steps before the last pass: from what the stage `relevance` released, or (relevance.mode off) by
    asking here. Of a number, its level is told.
    """
    n = given.facts.first.n if recipe.strategy else given.facts.n
    if not divided.first:
        ask_geometry(recipe, n, records, noisy_sums, given.weights)
        return _level(noisy_sums.released, noisy_sums.priced.values(), n)
    told, _ = given.earlier()
    if recipe.columns:
        scale = next(one.scale for one in divided.first if one.query.purpose == "quantiles")
        records.before = quantiles.quantiles(told["quantiles"], _places(recipe), n, scale)
    records.steps.append(centre(told["mean"], n, bias=recipe.bias, noise=_noise(recipe, divided.first)))
    if "whitening" in recipe.shares:
        scale = next(one.scale for one in divided.first if one.query.purpose == "whitening")
        records.steps.append(whiten(told["whitening"], scale, recipe.ridge))
    return _level(told, divided.first, n)


def _places(recipe: Recipe) -> NDArray[np.int64]:
    return np.array(recipe.columns, np.int64)


def _noise(recipe: Recipe, priced: Iterable[Priced]) -> float:
    """Of the sum of rows, where the centre is shrunk by it."""
    found = (one.scale for one in priced if one.query.purpose == "mean")
    return next(found, 0.0) if recipe.shrunk else 0.0


def _level(released: Mapping[str, NDArray[Any]], priced: Iterable[Priced], n: int) -> int:
    noise = next((one.scale for one in priced if one.query.purpose == "level"), None)
    return 0 if noise is None else level_of(int(released["level"][0]), n, noise)


def ask_geometry(
    recipe: Recipe,
    n: int,
    records: Records,
    noisy_sums: NoisySums,
    weights: NDArray[np.float64] | None = None,
) -> None:
    """The passes before the last: each adds a step that depends on released sums only."""
    if recipe.columns:
        noisy = noisy_sums.add_noise("quantiles", records.count(_places(recipe)))
        scale = noisy_sums.priced["quantiles"].scale
        records.before = quantiles.quantiles(noisy, _places(recipe), n, scale)
    total = np.zeros(recipe.width, np.int64)
    if "mean" in recipe.shares:
        asked: dict[str, Kind] = {"mean": "sum", "level": "level"}
        exact = records.ask(Wanted({name: kind for name, kind in asked.items() if name in recipe.shares}))
        total = noisy_sums.add_noise("mean", exact["mean"])
        if "level" in exact:
            noisy_sums.add_noise("level", exact["level"])
    noise = _noise(recipe, noisy_sums.priced.values())
    records.steps.append(centre(total, n, bias=recipe.bias, weights=weights, noise=noise))
    if "whitening" in recipe.shares:
        gram = noisy_sums.add_noise("whitening", records.ask(Wanted({"whitening": "gram"}))["whitening"])
        records.steps.append(whiten(gram, noisy_sums.priced["whitening"].scale, recipe.ridge))


def release_moments(recipe: Recipe, records: Records, noisy_sums: NoisySums, level: int = 0) -> None:
    """One pass: Gram matrix and cross moments of the final rows."""
    cross: Kind = "number" if recipe.number else "cross"
    sums = records.ask(Wanted({"gram": "gram", "cross": cross}, recipe.classes, level))
    for purpose in ("gram", "cross"):
        noisy_sums.add_noise(purpose, sums[purpose])
