"""What a release of coefficients asks, resolved from parameters and public facts: its map, its passes, the shares of
the budget and the noisy sums that they pay for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from airlock.errors import ParamsError
from airlock.inside.connection import Exchange
from airlock.inside.sealed import SealedReader
from airlock.models.features import columns as table_columns
from airlock.models.features import features, public
from airlock.models.features.choice import settle
from airlock.models.features.hybrid import runs_of
from airlock.models.features.quantiles import BINS
from airlock.models.features.rows import LIMIT
from airlock.models.numbers import HALF
from airlock.params import Params, Section, check
from airlock.privacy import sensitivity, weighing
from airlock.privacy.continual import Strategy
from airlock.privacy.plan import Facts
from stages.release import nightly_prices, running_totals
from stages.release.cluster import Cluster
from stages.release.noisy_sums import (
    Query,
    check_size,
)
from stages.release.passes import Records
from stages.release.units import check_local, moved_records, records_per_unit

NAME, VERSION = "coefficients", 2
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
