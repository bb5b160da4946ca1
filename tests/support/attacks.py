"""Attacks on mechanisms by name, as `airlock attack` runs them behind the wall."""

from __future__ import annotations

from typing import Any

from airlock.attack import attack, canary_audit
from airlock.attack.targets import Target
from airlock.params import Params
from airlock.privacy.plan import Facts
from stages.mechanisms import mechanism


def targets_of(params: Params, facts: Facts, **given: Any) -> list[Target]:
    return attack.targets_of(mechanism(params.release.mechanism), params, facts, **given)


def black_box(params: Params, facts: Facts, records: Any, labels: Any, **given: Any) -> Target:
    return attack.black_box(mechanism(params.release.mechanism), params, facts, records, labels, **given)


def audit_canaries(params: Params, **given: Any) -> list[dict[str, Any]]:
    name = params.release.mechanism
    return canary_audit.run(mechanism(name), mechanism(name, "open"), params, **given)
