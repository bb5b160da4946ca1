"""Who a record belongs to: keyed numbers in place of names, and no more records of one user than the schema allows."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.errors import RecordError
from stages.models.encoding import Encoded
from stages.models.values import as_texts
from stages.records.schema import User


class Users:
    """Counts each user's records as they stream by. Memory grows with the number of users, not of records."""

    def __init__(self, user: User, key: bytes) -> None:
        self._user, self._key = user, key
        self._seen: Counter[int] = Counter()

    @property
    def column(self) -> str:
        """Where the users' names are."""
        return self._user.column

    def bound(self, array: Any, encoded: Encoded, *, first_row: int) -> tuple[NDArray[np.int64], Encoded]:
        """Number each record's user, and turn records beyond the user's limit into null records.

        Raises:
            RecordError: a record has no user.
        """
        names = as_texts(array, self._user.column)
        if names.null_count:
            row = first_row + names.is_null().to_pylist().index(True) + 1
            raise RecordError("a missing user", column=self._user.column, row=row)
        coded = names.dictionary_encode()
        numbers = np.array([self._number(name) for name in coded.dictionary.to_pylist()], dtype=np.int64)
        users = numbers[coded.indices.to_numpy()] if len(numbers) else np.zeros(0, dtype=np.int64)
        keep = np.fromiter((self._counts(int(user)) for user in users), dtype=bool, count=len(users))
        x, y = encoded.x.copy(), encoded.y.copy()
        x[~keep], y[~keep] = 0, -1
        return users, replace(encoded, x=x, y=y, valid=encoded.valid * keep)

    def _number(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), key=self._key, person=b"airlock user", digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def _counts(self, user: int) -> bool:
        self._seen[user] += 1
        return self._seen[user] <= self._user.per_user
