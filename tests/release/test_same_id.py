"""The fingerprint in the id is what makes two data sets safe; the hash of a sum in its noise's key is not
enough.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from airlock.inside import manifest
from airlock.params import Params
from stages.mechanisms import mechanism
from tests.support.sealed_records import KEY, facts, seal, table

X, Y = table(30, 4, 3)
PARAMS = Params.model_validate({"release": {"passes": 1}})


def release(folder: Path, labels: Any, release_id: str) -> Any:
    folder.mkdir()
    with seal(folder, X, labels) as reader:
        return mechanism("coefficients").make(PARAMS, facts(X, 3), reader, key=KEY, release_id=release_id)[0]


def test_one_id_on_two_data_sets_would_tell_which_sums_changed(tmp_path: Path) -> None:
    """The control: forced on both, the same id shows without noise
    that a label changed and no feature did.
    """
    other = Y.copy()
    other[0] = (Y[0] + 1) % 3
    one, two = (release(tmp_path / str(at), labels, "forced") for at, labels in enumerate((Y, other)))
    assert one["gram"].tobytes() == two["gram"].tobytes()
    assert one["cross"].tobytes() != two["cross"].tobytes()
    # The second line holds: the difference is not that of the exact sums.
    assert abs(one["cross"] - two["cross"]).max() > 10 * 32767


def test_the_fingerprint_keeps_two_data_sets_apart(tmp_path: Path) -> None:
    other = Y.copy()
    other[0] = (Y[0] + 1) % 3
    known, plan = facts(X, 3), mechanism("coefficients").plan(PARAMS, facts(X, 3))
    ids = [manifest.release_id(plan, replace(known, fingerprint=seen)) for seen in ("f", "g")]
    assert ids[0] != ids[1]
    one, two = (release(tmp_path / str(at), labels, ids[at]) for at, labels in enumerate((Y, other)))
    assert one["gram"].tobytes() != two["gram"].tobytes()
    assert one["cross"].tobytes() != two["cross"].tobytes()
