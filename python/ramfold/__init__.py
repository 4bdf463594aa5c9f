"""Memory that folds, and a dense, compressed store of values.

>>> import ramfold
>>> a = ramfold.zeros((1000, 1000), limit="2M")   # a numpy.ndarray, at most 2 MiB of it in memory
>>> a[:] = 7
>>> float(a.sum())
7000000.0

``docs/python.md`` of the project is the manual. It has a table of what works on folded arrays, by
the way in which faults are served.
"""

from ._array import (
    Limit,
    array,
    asarray,
    empty,
    fault_mode,
    fromfile,
    load,
    ndarray,
    stats,
    zeros,
)
from ._fold import fold
from ._ramfold import VERSION as __version__
from ._signals import wrap as _wrap
from ._store import Store, TypedStore

_wrap()

__all__ = [
    "Limit",
    "Store",
    "TypedStore",
    "array",
    "asarray",
    "empty",
    "fault_mode",
    "fold",
    "fromfile",
    "load",
    "ndarray",
    "stats",
    "zeros",
]
