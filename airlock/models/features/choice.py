"""What `auto` means in the release section: mechanism and feature map, from public facts alone.

For tables the rule was found on development tables that no figure is reported on
(bench/results/tables/rule.md, docs/mechanism.md): random cosines pay as soon as there is signal, and how many
of them depends on it. The signal is n mu, records times the shift that (epsilon, delta) allows: how far the
sum over all records stands above its noise. Where it is scarce for so many columns and classes, the columns
alone go in, with few rounds and little for the Gram matrix, which would be all noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airlock.errors import ParamsError
from airlock.models.features import hybrid
from airlock.models.features.features import DEFAULTS
from airlock.params import Params, ReleaseParams
from airlock.privacy import gaussian
from airlock.privacy.plan import Facts

ROUNDS = "coefficients-iterated"
MECHANISMS = {"image": "coefficients", "tabular": ROUNDS}
COLOURS, LEARNED = 3, "prior-1"
"""Channels of a colour picture; the map for those, which is released in rounds."""
NIGHTLY = "coefficients"
"""What has running totals over nights."""
SPREAD = 3
"""Signal for each column inside the map, if codes are to be told apart value by value."""
LEAST, MOST, FACTOR = 32, 384, 1.7
"""Cosines: FACTOR signal^(2/3), within LEAST and MOST; the noise of the whitening is then the same part of a
row at every size."""
SCARCE, PLENTY = 4 / 3, 600
"""Signal for each column and class, below which no cosine pays; signal from which ten rounds do."""
PLENTY_OPTIONS = {"sureness_share": 0.02}
_SMALL = {"shrunk_centre": True, "even_ridge": 1.0, **PLENTY_OPTIONS}
ENOUGH_OPTIONS = {"mean_share": 0.06, "cross_share": 0.10, "rounds": 7, **_SMALL}
SCARCE_OPTIONS = {
    "mean_share": 0.10,
    "gram_share": 0.08,
    "cross_share": 0.20,
    "ridge": 0.45,
    "rounds": 5,
    **_SMALL,
}
"""What `coefficients-iterated` is asked where map and options are its own choice; what is named in params.yaml comes
first."""


@dataclass(frozen=True)
class Choice:
    """Mechanism, feature map and options of a release, and why they are these."""

    mechanism: str
    features: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)


def settle(params: Params, facts: Facts) -> Params:
    """The same parameters with mechanism, feature map and what goes with it by name."""
    chosen = choose(params.release, facts)
    options = {**chosen.options, **params.release.options}
    return _changed(params, mechanism=chosen.mechanism, features=chosen.features, options=options)


def settle_mechanism(params: Params, kind: str, *, colour: bool = False) -> Params:
    """The same parameters with the mechanism by name; it knows by itself what its features are."""
    return _changed(params, mechanism=_mechanism(params.release, kind, colour=colour))


def _changed(params: Params, **names: Any) -> Params:
    return params.model_copy(update={"release": params.release.model_copy(update=names)})


def _mechanism(release: ReleaseParams, kind: str, *, colour: bool) -> str:
    if release.horizon is None:
        usual = ROUNDS if colour and release.features in ("auto", LEARNED) else MECHANISMS[kind]
        return usual if release.mechanism == "auto" else release.mechanism
    if release.mechanism not in ("auto", NIGHTLY):
        raise ParamsError(
            f"params.yaml: release.horizon serves '{NIGHTLY}': '{release.mechanism}' has no running totals over nights "
            "(docs/nights.md); set release.mechanism, or release.horizon to null"
        )
    return NIGHTLY


def is_colour(facts: Facts) -> bool:
    """Colour pictures for which the schema names no map."""
    return facts.kind == "image" and facts.shape[2:] == (COLOURS,) and facts.features in (None, LEARNED)


def choose(release: ReleaseParams, facts: Facts) -> Choice:
    """What is named stays; what is `auto` follows from kind, size, columns, classes, epsilon and delta."""
    mechanism = _mechanism(release, facts.kind, colour=is_colour(facts))
    facts = facts.first if release.horizon else facts
    if release.features != "auto":
        return Choice(mechanism, _complete(release.features, release, facts), "named in params.yaml")
    if facts.features:
        return Choice(mechanism, _complete(facts.features, release, facts), "named in the schema")
    if mechanism == ROUNDS and is_colour(facts):
        return Choice(mechanism, LEARNED, "the map for colour pictures, learned from generated ones")
    if mechanism != ROUNDS or facts.kind != "tabular" or facts.layout is None:
        return Choice(mechanism, DEFAULTS[facts.kind], f"the map for {facts.kind} data")
    found = signal(release, facts)
    if facts.number is None and found < SCARCE * facts.shape[0] * len(facts.labels):
        return _scarce(mechanism, found, facts)
    width = min(MOST, max(LEAST, round(FACTOR * found ** (2 / 3))))
    columns = hybrid.columns_of(facts.layout)
    reason = (
        f"{width} cosines beside {columns} column{'s' if columns > 1 else ''}, for a signal of {found:,.0f} "
        f"({facts.n:,} records at this epsilon and delta)"
    )
    options = {} if facts.number else ENOUGH_OPTIONS if found < PLENTY else PLENTY_OPTIONS
    return Choice(mechanism, _complete(f"hybrid-{width}-1", release, facts), reason, options)


def _scarce(mechanism: str, found: float, facts: Facts) -> Choice:
    """The columns alone."""
    width, classes = facts.shape[0], len(facts.labels)
    reason = (
        f"no cosines, for a signal of {found:,.0f} ({facts.n:,} records at this epsilon and delta) is scarce for "
        f"{width:,} encoded column{'s' if width > 1 else ''} and {classes} classes"
    )
    options = {"clip": clip_for(classes), **SCARCE_OPTIONS}
    return Choice(mechanism, DEFAULTS["tabular"], reason, options)


def signal(release: ReleaseParams, facts: Facts) -> float:
    """How far a sum over all records stands above the noise for one unit of privacy."""
    moved = (facts.per_user or 1) if release.unit == "user" else 1
    moved *= 2 if release.neighbours == "replace-one" else 1
    return facts.n * gaussian.mu_at(release.epsilon, release.delta) / moved


def clip_for(classes: int) -> float:
    """Length to which residuals of the hybrid map's rounds are cut: 0.4 for two classes, 0.18 for ten."""
    return math.sqrt(0.32 / classes)


def _complete(name: str, release: ReleaseParams, facts: Facts) -> str:
    """The name of a hybrid map with the layout of these columns, if it has none.

    Codes are spread over their values where that leaves enough signal for each of them, else they are
    numbers.
    """
    if name.startswith("onnx:") and "@" not in name:
        return _declared(name, facts)
    matched = hybrid.NAME.fullmatch(name)
    if facts.kind != "tabular" or not matched or matched[2]:
        return name
    layout = facts.layout or f"nx{facts.shape[0]}"
    spread = SPREAD * hybrid.width_of(layout, 0) <= signal(release, facts)
    return f"{name}@{layout if spread else hybrid.without_grids(layout)}"


def _declared(name: str, facts: Facts) -> str:
    """The encoder `onnx:FILE` with the width and hash that the schema has for it.

    Raises:
        ParamsError: the schema, in which the owner vouches for an encoder, has another or none.
    """
    if not (facts.features or "").startswith(f"{name}@"):
        raise ParamsError(
            f"params.yaml: release.features '{name}' is not the encoder that the schema declares: write features and "
            "encoder there, and confirm it (docs/own-data.md)"
        )
    return str(facts.features)
