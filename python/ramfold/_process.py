"""What belongs to this process: its pager, and its way to serve faults.

A forked child has no threads of its parent, so it gets a pager of its own with its first array.
"""

import os
import threading

from . import _ramfold

#: Addresses for arrays that have no limit, and for how many bytes each of them may have at most.
_PLAIN_ROOM = 8 << 30
_PLAIN_MAX = 1 << 20

_NAMES = ("thread", "protection", "signal", "guards")


class _Process:
    """The pager of a process, and the field of its small arrays without a limit."""

    def __init__(self):
        self.folding = None
        self.plain = None
        self.frames = None
        # Of several threads that make the first array, one opens the pager.
        self.opening = threading.RLock()

    def get(self):
        if self.folding is None:
            with self.opening:
                if self.folding is None:
                    self.folding = _open()
        return self.folding

    def store_frames(self):
        """The memory that all stores share."""
        if self.frames is None:
            with self.opening:
                if self.frames is None:
                    self.frames = _ramfold.Frames()
        return self.frames

    def plain_part(self, size):
        """A part of the field for arrays without a limit; None where it has no room."""
        if size > _PLAIN_MAX:
            return None
        try:
            if self.plain is None:
                with self.opening:
                    if self.plain is None:
                        self.plain = self.get().share(_PLAIN_ROOM, None, "lz4", "auto", "fast")
            return self.plain.plot(size)
        except MemoryError:
            return None


def _open():
    asked = os.environ.get("RAMFOLD_FAULT_MODE")
    if asked:
        if asked not in _NAMES:
            raise ValueError(f"RAMFOLD_FAULT_MODE is one of {', '.join(_NAMES)}, not {asked!r}")
        return _ramfold.Folding(asked)
    refusals = []
    for mode in _NAMES:
        try:
            return _ramfold.Folding(mode)
        except RuntimeError as refusal:
            refusals.append(f"{mode}: {refusal}")
    raise RuntimeError("folded memory cannot be had here: " + "; ".join(refusals))


_here = _Process()


def process():
    """That of this process."""
    return _here


def _in_child():
    global _here
    # What was the parent's is not dropped: the arrays that it still has lead there.
    _parents.append(_here)
    _here = _Process()


_parents = []

os.register_at_fork(after_in_child=_in_child)


def fault_mode():
    """How this process serves touches of folded pages: ``"thread"``, ``"protection"``,
    ``"signal"`` or ``"guards"``.

    The first of them that the system allows is taken with the first array. The environment
    variable ``RAMFOLD_FAULT_MODE`` chooses another one.
    """
    return _here.get().mode


def stats():
    """What all folded arrays of this process take beside their resident pages, in bytes.

    ``compressed_bytes`` are frames with compressed pages, ``free_bytes`` are frames that are kept
    for the next ones, ``metadata_bytes`` are tables, and ``buffer_bytes`` is the most that
    buffers of the pager take.
    """
    return _here.get().stats()
