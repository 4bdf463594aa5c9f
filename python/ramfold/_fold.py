"""Arrays of unchanged code: while a ``fold`` is open, NumPy gets their memory from it."""

import contextvars

from ._array import Limit
from ._process import process
from ._sizes import size as _size

__all__ = ["fold"]

#: The folds that are open in this context, each with the handler that was set before it.
_open = contextvars.ContextVar("ramfold.folds", default=())

_REMEDY = ("system calls on folded memory are served in fault mode 'thread' alone, and NumPy's own "
           "functions would lose data without a word. It needs Linux 6.8, and root, CAP_SYS_PTRACE "
           "or access to /dev/userfaultfd. `ramfold run` folds the memory of a whole program "
           "without any of them")


class fold:
    """All arrays that are made in a ``with`` block fold, also in code that knows nothing of it.

    >>> import numpy, ramfold
    >>> with ramfold.fold(limit="8M"):
    ...     a = numpy.arange(8 << 20)        # 64 MiB, of which 8 MiB are in memory
    >>> int(a[-1])
    8388607

    ``limit`` is how many bytes of all of them may be in memory: a number, text such as ``"256M"``,
    a :class:`Limit` that other arrays share, or ``None``. ``shuffle`` and ``density`` are
    those of :class:`Limit`. Arrays of fewer than ``least`` bytes do not fold. ``room`` is how many
    bytes the arrays may have altogether; each takes a multiple of 256 KiB of it. If no room is
    left, NumPy raises ``MemoryError``.

    The block holds for the current context of ``contextvars``: for this thread, or for this task of
    asyncio and those that it starts. Other threads make plain arrays, unless they run in a copy of
    the context. Arrays stay folded after the block. Blocks may be nested; the inner one holds.
    """

    def __init__(self, limit=None, *, room=None, codec=None, shuffle="auto", density="fast",
                 least="64K"):
        least = _size(least, "the least size")
        folding = process().get()
        if folding.mode != "thread":
            raise RuntimeError(f"fold() needs another way to serve faults than '{folding.mode}': "
                               + _REMEDY)
        if not isinstance(limit, Limit):
            limit = Limit(limit, room=room, codec=codec or "lz4", shuffle=shuffle, density=density)
        elif (room, codec, shuffle, density) != (None, None, "auto", "fast"):
            raise TypeError("room, codec, shuffle and density are those of the Limit")
        self._limit = limit
        self._hook = limit._shared.hook(least)

    def __enter__(self):
        before = self._hook.enter()
        try:
            _open.set((*_open.get(), (self, before)))
        except BaseException:
            self._hook.leave(before)
            raise
        return self

    def __exit__(self, *_):
        folds = _open.get()
        if not folds or folds[-1][0] is not self:
            raise RuntimeError("this fold is not the last one that was opened in this context: a "
                               "block ends in the task, the thread or the generator that began it")
        _open.set(folds[:-1])
        self._hook.leave(folds[-1][1])

    @property
    def limit(self):
        """The :class:`Limit` that the arrays share. ``fold.limit.bytes`` may be set."""
        return self._limit

    def page_out(self):
        """Compress all pages that are in memory now. Returns the bytes that had to stay."""
        _, stayed = self._hook.page_out()
        return stayed * 4096

    def stats(self):
        """As :meth:`Limit.stats`, with ``arrays``, the number of arrays that fold here."""
        return {"arrays": self._hook.count, **self._limit.stats()}

    def __repr__(self):
        return f"ramfold.fold({self._limit!r})"

    def __reduce__(self):
        raise TypeError("a fold belongs to its process: make another one there")
