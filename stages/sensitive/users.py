"""Who a record belongs to: keyed numbers in place of names, and no more of one user than the schema allows.

A user has records, and may appear in slots of other users' records. Records beyond the limit become null
records: which ones depends on that user's records alone. Slots beyond the limit are refused and not emptied:
a slot that is emptied because the friend appeared too often would come back when somebody else is taken away,
and one user would reach records of strangers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import RecordError
from airlock.records.encoding import Encoded
from airlock.records.schema import User
from airlock.records.values import as_texts


class Users:
    """Counts each user's records and appearances. Memory grows with the number of users, not of records."""

    def __init__(self, user: User, key: bytes) -> None:
        self._user, self._key = user, key
        self._records: Counter[int] = Counter()
        self._appearances: Counter[int] = Counter()

    def bound(self, batch: Any, encoded: Encoded, *, first_row: int) -> tuple[NDArray[np.int64], Encoded]:
        """Number each record's user, turn records beyond the user's limit into null records, and empty slots
        that name nobody.

        Raises:
            RecordError: a record has no user, or somebody appears in more slots than the schema allows.
        """
        users, named = self._numbers(batch, self._user.column)
        if not named.all():
            raise RecordError(
                "a missing user", column=self._user.column, row=first_row + int(named.argmin()) + 1
            )
        keep = _within(users, self._records, self._user.per_user)
        x, y = encoded.x.copy(), encoded.y.copy()
        friends = self._user.friends.names if self._user.friends else ()
        for place, column in enumerate(friends):
            x[:, place - len(friends)] *= self._appearing(batch, column, first_row)
        x[~keep], y[~keep] = 0, -1
        return users, replace(encoded, x=x, y=y, valid=encoded.valid * keep)

    def _appearing(self, batch: Any, column: str, first_row: int) -> NDArray[np.bool_]:
        """Which slots of a column name a friend."""
        assert self._user.friends is not None
        friends, named = self._numbers(batch, column)
        within = _within(friends[named], self._appearances, self._user.friends.appearances)
        if not within.all():
            row = first_row + int(np.flatnonzero(named)[within.argmin()]) + 1
            raise RecordError(
                "a user who appears more often than `user.friends.appearances` in the schema",
                column=column,
                row=row,
            )
        return named

    def _numbers(self, batch: Any, column: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A number for each name in a column, and which have one."""
        coded = as_texts(batch.column(column), column).dictionary_encode()
        known = np.array(
            [self._number(name) if name else 0 for name in coded.dictionary.to_pylist()] + [0], dtype=np.int64
        )
        named = np.array([bool(name) for name in coded.dictionary.to_pylist()] + [False])
        places = coded.indices.fill_null(len(known) - 1).to_numpy()
        return known[places], named[places]

    def _number(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), key=self._key, person=b"airlock user", digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def _within(numbers: NDArray[np.int64], seen: Counter[int], limit: int) -> NDArray[np.bool_]:
    """Which of these are among the first `limit` of their number, counting what was seen before."""

    def counts(number: int) -> bool:
        seen[number] += 1
        return seen[number] <= limit

    return np.fromiter((counts(number) for number in numbers.tolist()), dtype=bool, count=len(numbers))
