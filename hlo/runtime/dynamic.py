"""Dynamic: an array of a bounded dynamic shape with its run-time sizes, at the public API."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field


class Dynamic(Struct, frozen=True, eq=False):
    """An array as large as the bounds; only elements below sizes[d] in each dimension d count.

    The argument of a parameter with dimensions `<=n`; one without sizes is as large as it counts.

    >>> hlo.Dynamic(np.arange(4), {0: 3}).valid()
    array([0, 1, 2])
    """

    array: np.ndarray
    sizes: Mapping[int, int] = field(default_factory=dict)

    def valid(self) -> np.ndarray:
        """The part that counts."""
        return self.array[
            tuple(slice(0, self.sizes.get(d, n)) for d, n in enumerate(self.array.shape))
        ]
