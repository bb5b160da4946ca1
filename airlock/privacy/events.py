"""DpEvents as JSON, and every event as a short list of what must be counted.

A multiplier is always noise over sensitivity *under the population's neighbour relation*: a Gaussian of
multiplier z has shift 1/z, whatever two records differ in. For a Poisson sample under replace-one the
sensitivity is 2C, C being the largest norm of a contribution.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

KINDS = {
    "none": "NoOpDpEvent",
    "non-private": "NonPrivateDpEvent",
    "gaussian": "GaussianDpEvent",
    "laplace": "LaplaceDpEvent",
    "discrete-laplace": "DiscreteLaplaceDpEvent",
    "poisson-sampled": "PoissonSampledDpEvent",
    "self-composed": "SelfComposedDpEvent",
    "composed": "ComposedDpEvent",
}
Checks = Mapping[str, Callable[[Any], bool]]


def _positive(value: Any) -> bool:
    return _number(value) and 0 < value < math.inf


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


FIELDS: Mapping[str, Checks] = {
    "none": {},
    "non-private": {},
    "gaussian": {"noise_multiplier": _positive},
    "laplace": {"noise_multiplier": _positive},
    "discrete-laplace": {
        "noise_parameter": _positive,
        "sensitivity": lambda value: _count(value) and value > 0,
    },
    "poisson-sampled": {"sampling_probability": lambda value: _number(value) and 0 <= value <= 1},
    "self-composed": {"count": _count},
    "composed": {},
}


def to_json(event: DpEvent) -> dict[str, Any]:
    """An event as plain JSON; floats keep every bit.

    Raises:
        ValueError: the event is of a kind, or has a value, that cannot be accounted for.
    """
    kind = next((kind for kind, name in KINDS.items() if name == type(event).__name__), None)
    if kind is None:
        raise ValueError(
            f"events of type {type(event).__name__} are not supported: use one of {', '.join(KINDS.values())}"
        )
    document: dict[str, Any] = {"kind": kind, **{name: getattr(event, name) for name in FIELDS[kind]}}
    if kind in ("poisson-sampled", "self-composed"):
        document["event"] = to_json(event.event)
    if kind == "composed":
        document["events"] = [to_json(part) for part in event.events]
    _check(document)
    return document


def from_json(document: Mapping[str, Any]) -> DpEvent:
    """The inverse of `to_json`.

    Raises:
        ValueError: the document is not an event.
    """
    _check(document)
    fields = {name: value for name, value in document.items() if name != "kind"}
    if "event" in fields:
        fields["event"] = from_json(fields["event"])
    if "events" in fields:
        fields["events"] = [from_json(part) for part in fields["events"]]
    return getattr(library(), KINDS[document["kind"]])(**fields)


def library() -> Any:
    """`dp_accounting.dp_event`, without the rest of its package.

    The package's own first lines import scipy.signal and scipy.optimize: one to two seconds in every process that
    prices a release, of which Gaussians need nothing. Where all of it is imported later, it takes this module.
    """
    name = "dp_accounting.dp_event"
    if name not in sys.modules and (package := importlib.util.find_spec("dp_accounting")):
        places = package.submodule_search_locations or ()
        spec = importlib.util.spec_from_file_location(name, f"{next(iter(places))}/dp_event.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(name)


def _check(document: Mapping[str, Any]) -> None:
    kind = document.get("kind")
    if kind not in KINDS:
        raise ValueError(f"unknown kind of event {kind!r}: use one of {', '.join(KINDS)}")
    nested = {"poisson-sampled": {"event"}, "self-composed": {"event"}, "composed": {"events"}}.get(
        kind, set()
    )
    if set(document) != {"kind", *FIELDS[kind], *nested}:
        raise ValueError(
            f"a {kind} event has the fields {', '.join(sorted({*FIELDS[kind], *nested})) or '(none)'}, got "
            f"{sorted(document)}"
        )
    for name, holds in FIELDS[kind].items():
        if not holds(document[name]):
            raise ValueError(f"{name} of a {kind} event cannot be {document[name]!r}")


def gaussians(document: Mapping[str, Any]) -> Counter[float] | None:
    """How often each noise multiplier happens in an event of Gaussians alone; None if it holds anything else.

    It agrees with `leaves` and needs no library of events, which takes a second to load.

    Raises:
        ValueError: the document is not an event.
    """
    found: Counter[float] = Counter()
    return found if _gather_gaussians(document, 1, found) else None


def _gather_gaussians(document: Mapping[str, Any], times: int, found: Counter[float]) -> bool:
    _check(document)
    match document["kind"]:
        case "gaussian":
            found.update({document["noise_multiplier"]: times} if times else {})
            return True
        case "self-composed":
            return _gather_gaussians(document["event"], times * document["count"], found)
        case "composed":
            return all(_gather_gaussians(part, times, found) for part in document["events"])
    return bool(document["kind"] == "none")


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """Many events, one after the other and possibly adaptive, as one."""
    composed: DpEvent = library().ComposedDpEvent(list(events))
    return composed


def leaves(event: DpEvent) -> Counter[DpEvent]:
    """How often each basic event happens: composition flattened, nothing approximated.

    Raises:
        ValueError: the event holds something that cannot be accounted for.
    """
    found: Counter[DpEvent] = Counter()
    _gather(event, 1, found)
    return found


def _gather(event: DpEvent, times: int, found: Counter[DpEvent]) -> None:
    name = type(event).__name__
    if name == "ComposedDpEvent":
        for part in event.events:
            _gather(part, times, found)
    elif name == "SelfComposedDpEvent":
        _gather(event.event, times * event.count, found)
    elif name == "PoissonSampledDpEvent" and (
        event.sampling_probability == 1 or type(event.event).__name__ == "NonPrivateDpEvent"
    ):
        _gather(event.event, times, found)
    else:
        to_json(event)
        if name == "PoissonSampledDpEvent" and type(event.event).__name__ not in (
            "GaussianDpEvent",
            "LaplaceDpEvent",
        ):
            raise ValueError(
                "a Poisson sample must be of one Gaussian or Laplace "
                "event: write a step's queries as one of them"
            )
        if times and name != "NoOpDpEvent" and getattr(event, "sampling_probability", 1) > 0:
            found[event] += times


def repeat(parts: Counter[DpEvent]) -> DpEvent:
    """The inverse of `leaves`: each part so many times."""
    return compose(library().SelfComposedDpEvent(part, count) for part, count in parts.items())


def scale(event: DpEvent, factor: float) -> DpEvent:
    """The same event with `factor` times the noise in every part."""
    return repeat(Counter({_scaled(part, factor): count for part, count in leaves(event).items()}))


def _scaled(part: DpEvent, factor: float) -> DpEvent:
    document = to_json(part)
    inner = document.get("event", document)
    if "noise_multiplier" in inner:
        inner["noise_multiplier"] *= factor
    elif "noise_parameter" in inner:
        inner["noise_parameter"] /= factor
    return from_json(document)
