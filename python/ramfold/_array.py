"""Arrays that fold: their memory is a region, whose cold pages are compressed."""

import contextlib
import math
import operator
import os
import pickle

import numpy as np

from . import _ramfold
from ._process import fault_mode, process, stats
from ._sizes import size as _size

__all__ = ["Limit", "array", "asarray", "empty", "fault_mode", "fromfile", "load", "ndarray",
           "stats", "zeros"]

#: Bytes that move between a file and an array at a time.
_CHUNK = 1 << 20

#: The room of a limit that does not say it: so many times the limit, between two bounds.
_ROOM_TIMES, _ROOM_LEAST, _ROOM_MOST = 16, 4 << 30, 1 << 40

_byte_bounds = np.lib.array_utils.byte_bounds

_exporting = _ramfold.exporting_type(np.ndarray)


class Limit:
    """A limit that arrays share.

    At most ``bytes`` of all arrays that were made with ``limit=`` this object are in memory at a
    time. ``room`` is how many bytes they may have altogether. It takes addresses and a little
    memory for tables, 9 MiB for 16 GiB. Each array takes a multiple of 256 KiB of it.

    ``shuffle`` is the size of the arrays' elements, 2, 4 or 8 bytes, if they are alike; see
    :func:`empty`. ``"auto"`` shuffles the pages that gain by it, by what samples of the pages around
    them say.

    ``density`` says how dense pages become while they stay out: ``"fast"`` leaves them as they are,
    ``"balanced"`` makes those denser that were out for a minute, and ``"dense"`` takes more time
    for it, and for each touch. A thread works on that, with at most a tenth of one CPU.
    """

    def __init__(self, bytes, *, room=None, codec="lz4", shuffle="auto", density="fast"):
        codec = "lz4" if codec is None else codec
        _of_pages(codec, shuffle)
        if not isinstance(density, str):
            raise TypeError(f"a density is 'fast', 'balanced' or 'dense', not {density!r}")
        bytes = None if bytes is None else _size(bytes, "a limit")
        room = _room_of(bytes or 0) if room is None else _size(room, "a room")
        self._bytes = bytes
        self._room = room
        self._codec = codec
        self._shuffle = shuffle
        self._density = density
        self._shared = process().get().share(room, bytes, codec, shuffle, density)

    @property
    def bytes(self):
        """The limit in bytes; ``None`` if there is none. It may be set."""
        return self._bytes

    @bytes.setter
    def bytes(self, value):
        value = None if value is None else _size(value, "a limit")
        self._shared.set_limit(value)
        self._bytes = value

    @property
    def room(self):
        """Bytes that all arrays may have altogether."""
        return self._room

    def densify(self):
        """Make the pages that are out as dense as the density allows, however short they rested.

        It takes up to some hundred microseconds for a page, and is for a program that is about to
        rest. ``ValueError`` if the density is ``"fast"``.
        """
        self._shared.densify()

    def stats(self):
        """Where the pages of all arrays are, and what faults have cost, as a dictionary."""
        return self._shared.stats()

    def _part(self, size):
        return self._shared.plot(size)

    def __repr__(self):
        return (f"ramfold.Limit({self._bytes}, room={self._room}, codec={self._codec!r}, "
                f"shuffle={self._shuffle!r}, density={self._density!r})")

    def __reduce__(self):
        raise TypeError("a Limit belongs to its process: make another one there")


class ndarray(_exporting):
    """A ``numpy.ndarray`` whose memory folds.

    ``zeros``, ``empty``, ``array`` and ``asarray`` make it. Views and slices of it are folded too.
    What NumPy makes anew is not: arithmetic gives plain arrays, and functions such as ``copy``,
    ``astype`` and ``take`` give arrays of this type in plain memory.

    Pages are pinned while a buffer of the array is used, for example by ``file.write(a)``. Code
    that takes the address alone (``numpy.asarray(a)``, pandas, Arrow) needs :meth:`pinned`, if it
    then makes a system call on it.
    """

    @property
    def is_folded(self):
        """Whether the bytes of this array are in memory that folds."""
        return _ramfold.fold_of(self) is not None

    @property
    def limit(self):
        """Bytes that may be in memory, of this array and of all that share its memory: a number, a
        :class:`Limit` that is shared, or ``None``.

        It may be set to another number or to ``None``, unless it is shared.
        """
        return _fold(self).limit

    @limit.setter
    def limit(self, value):
        fold = _fold(self)
        if isinstance(value, Limit) or isinstance(fold.limit, Limit):
            raise ValueError("the limit is shared: set `bytes` of the Limit, or make a copy with "
                             "another one (ramfold.array(a, limit=..))")
        if fold.is_part:
            raise ValueError("an array of at most 1 MiB that was made without a limit shares its "
                             "memory with others: make a copy with one (ramfold.array(a, "
                             "limit=..))")
        value = None if value is None else _size(value, "a limit")
        fold.set_limit(value)
        fold.limit = value

    def stats(self):
        """Where the pages are of the whole array that this is a part of, as a dictionary.

        ``resident_bytes`` are in memory, ``folded_bytes`` are compressed, ``staged_bytes`` are on
        the way, and ``untracked_bytes`` lie where nothing was ever folded. Arrays with a limit of
        their own have counts of faults too.
        """
        return _fold(self).stats()

    def page_out(self):
        """Compress the whole pages of this array now. Returns the bytes that had to stay."""
        fold = _fold(self)
        _, stayed = fold.page_out(*_range(self, fold))
        return stayed * 4096

    def prefetch(self):
        """Bring the pages of this array in, as far as the limit allows."""
        fold = _fold(self)
        fold.prefetch(*_range(self, fold))

    @contextlib.contextmanager
    def pinned(self, index=...):
        """Keep ``self[index]`` in memory for a ``with`` block, whatever the limit is.

        Gives a plain ``numpy.ndarray`` of it. System calls may be made on it, also by code that
        knows only its address. It must not be used after the block.
        """
        part = self[index]
        if not isinstance(part, np.ndarray):
            raise TypeError("pinned() takes an index that gives an array")
        fold = _ramfold.fold_of(part)
        if fold is None:
            if self.is_folded:
                raise IndexError("this index makes a copy: pin a slice")
            yield part.view(np.ndarray)
            return
        start, end = _range(part, fold)
        fold.pin(start, end)
        try:
            yield part.view(np.ndarray)
        finally:
            fold.unpin(start, end)

    def tofile(self, fid, sep="", format="%s"):
        """As ``numpy.ndarray.tofile``, written a MiB at a time, so that the limit holds."""
        if sep != "" or not self.is_folded:
            return super().tofile(fid, sep, format)
        with contextlib.ExitStack() as stack:
            if isinstance(fid, (str, bytes, os.PathLike)):
                fid = stack.enter_context(open(fid, "wb"))
            for chunk in _chunks(self):
                with chunk.pinned() as plain:
                    plain.tofile(fid)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        # What a function makes anew is plain. What it was told to write to stays what it is.
        if isinstance(array, ndarray):
            return array
        return array[()] if return_scalar else array

    def __reduce_ex__(self, protocol):
        # It is a plain array elsewhere. A buffer that is passed on is one of ours, and pinned.
        plain = self.view(np.ndarray)
        function, arguments, *rest = plain.__reduce_ex__(protocol)
        if arguments and isinstance(arguments[0], pickle.PickleBuffer):
            of = _in_order(self)
            if not of.flags.c_contiguous:
                return plain.__reduce_ex__(4)
            arguments = (pickle.PickleBuffer(of), *arguments[1:])
        return (function, arguments, *rest)

    def __reduce__(self):
        return self.__reduce_ex__(4)


def _fold(array):
    """The memory that an array lies in."""
    fold = _ramfold.fold_of(array)
    if fold is None:
        raise ValueError("this array is not folded: it is a copy, or the result of a function. "
                         "ramfold.array(a, limit=..) makes a folded copy")
    return fold


def _room_of(limit):
    """The room of a limit that does not say it."""
    return min(max(_ROOM_TIMES * limit, _ROOM_LEAST), _ROOM_MOST)


def _in_order(array):
    """The array with its axes in the order of memory: in C order, if it has no gaps."""
    if array.flags.c_contiguous:
        return array
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    return array.transpose(axes)


def _range(array, fold):
    """The bytes of an array, counted from the start of its fold."""
    if array.size == 0:
        return 0, 0
    low, high = _byte_bounds(array.view(np.ndarray))
    return low - fold.address, high - fold.address


def _chunks(array):
    """The elements in C order, as one-dimensional parts. Those of a contiguous array are views."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        step = max(1, _CHUNK // max(1, array.itemsize))
        for start in range(0, flat.size, step):
            yield flat[start:start + step]
    else:
        step = max(1, _CHUNK // max(1, array.itemsize))
        for start in range(0, array.size, step):
            yield array.flat[start:start + step].view(ndarray)


def _map(size, limit, codec, shuffle, dtype):
    """Memory that folds."""
    _of_pages(codec, shuffle)
    here = process()
    if isinstance(limit, Limit):
        if codec is not None or shuffle != "auto":
            raise ValueError("arrays that share a limit share its codec and its shuffle: give them "
                             "to Limit")
        return limit._part(max(1, size))
    if limit is not None:
        limit = _size(limit, "a limit")
    fold = None
    if limit is None and codec is None and shuffle == "auto":
        fold = here.plain_part(max(1, size))
    codec = "lz4" if codec is None else codec
    if shuffle == "auto":
        # Others find what numbers have in common by themselves, and lose by it as often as not.
        shuffle = _element(dtype) if codec.startswith("lz") else None
    return fold or here.get().map(max(1, size), limit, codec, shuffle)


def _length(length):
    """A length of a shape."""
    try:
        found = operator.index(length)
    except TypeError:
        raise TypeError(f"a shape is a number or a tuple of numbers, and has {length!r}") from None
    if found < 0:
        raise ValueError(f"a length is not negative: {length!r}")
    return found


def _of_pages(codec, shuffle):
    """Refuses what says in no way how pages are compressed."""
    if not isinstance(codec, (str, type(None))):
        raise TypeError(f"a codec is text such as 'lz4' or 'zstd:3', not {codec!r}")
    if shuffle not in (None, "auto", 2, 4, 8):
        raise ValueError(f"pages are shuffled by 2, 4 or 8 bytes, 'auto' or None, not {shuffle!r}")


def _element(dtype):
    """The bytes of the numbers that an array consists of, if a page can be shuffled by them."""
    if dtype.kind == "U":
        return 4
    size = dtype.base.itemsize // 2 if dtype.kind == "c" else dtype.base.itemsize
    return size if size in (2, 4, 8) and dtype.kind in "iufcmMV" else None


def _sized(dtype):
    if dtype.itemsize == 0:
        raise ValueError(f"elements of type {dtype.str!r} have no length: say it, as in 'U16'")
    return dtype


def _found(source, dtype):
    """What ``dtype`` is for the elements of ``source``: it may leave a length or a unit open."""
    has_no_unit = dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic"
    return source.astype(dtype).dtype if has_no_unit or dtype.itemsize == 0 else dtype


def empty(shape, dtype=float, order="C", *, limit=None, codec=None, shuffle="auto"):
    """A folded array of zeros.

    ``limit`` is how many bytes of it may be in memory at a time, at least 1 MiB: a number, text
    such as ``"256M"``, or a :class:`Limit` that arrays share. Without a limit nothing is folded by
    itself, and :meth:`ndarray.page_out` does it.

    ``codec`` compresses its pages: ``"lz4"``, ``"zstd"``, ``"zstd:3"``, ``"lzo"`` and so on.

    ``shuffle`` orders the bytes of a page by elements of 2, 4 or 8 bytes before that, so that numbers
    take much less. ``"auto"`` takes the size of the elements, for ``lz4``, ``lz4hc`` and ``lzo``.
    ``None`` leaves bytes as they are.
    """
    dtype = _sized(np.dtype(dtype))
    if dtype.hasobject:
        raise TypeError("an array of Python objects cannot be folded: its elements are references, "
                        "which Python follows at any time. Fold the arrays that it holds")
    if order not in ("C", "F"):
        raise ValueError(f"order is 'C' or 'F', not {order!r}")
    shape = tuple(shape) if np.iterable(shape) else (shape,)
    shape = tuple(_length(length) for length in shape)
    size = _size(math.prod(shape) * dtype.itemsize, "the size of an array")
    fold = _map(size, limit, codec, shuffle, dtype)
    fold.limit = limit if limit is None or isinstance(limit, Limit) else _size(limit)
    bytes = np.asarray(fold)
    return np.ndarray.__new__(ndarray, shape, dtype, bytes, 0, None, order)


def zeros(shape, dtype=float, order="C", *, limit=None, codec=None, shuffle="auto"):
    """A folded array of zeros. No page is touched. See :func:`empty` for ``limit``."""
    return empty(shape, dtype, order, limit=limit, codec=codec, shuffle=shuffle)


def array(object, dtype=None, *, order="K", limit=None, codec=None, shuffle="auto"):
    """A folded copy of ``object``. See :func:`empty` for ``limit`` and ``codec``."""
    if isinstance(object, np.ndarray):
        source = object
        dtype = source.dtype if dtype is None else _found(source, np.dtype(dtype))
    else:
        source = np.asanyarray(object, dtype)
        dtype = source.dtype
    if order not in ("K", "A", "C", "F"):
        raise ValueError(f"order is 'K', 'A', 'C' or 'F', not {order!r}")
    if order in ("K", "A"):
        is_fortran = source.flags.f_contiguous and not source.flags.c_contiguous
        order = "F" if is_fortran else "C"
    made = empty(source.shape, dtype, order, limit=limit, codec=codec, shuffle=shuffle)
    # An element of a dtype such as ("i4", (3,)) is an array, and gets its value everywhere.
    if within := made.ndim - source.ndim:
        source = source.reshape(source.shape + (1,) * within)
    np.copyto(made, source, casting="unsafe")
    return made


def asarray(object, dtype=None, *, limit=None, codec=None, shuffle="auto"):
    """``object`` itself if it is folded and has this ``dtype``, or else a folded copy of it."""
    is_any = limit is None and codec is None and shuffle == "auto"
    if isinstance(object, ndarray) and object.is_folded and is_any:
        if dtype is None or object.dtype == np.dtype(dtype):
            return object
    return array(object, dtype, limit=limit, codec=codec, shuffle=shuffle)


def load(file, *, limit=None, codec=None, shuffle="auto"):
    """A folded array with the contents of a ``.npy`` file, which ``numpy.save`` writes.

    It is read a MiB at a time, so that the limit holds from the first byte on.
    """
    with contextlib.ExitStack() as stack:
        if not hasattr(file, "readinto"):
            file = stack.enter_context(open(file, "rb"))
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"a .npy file of version {version} is not known: use numpy.load")
        read = {(1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(file)
        made = empty(shape, dtype, "F" if is_fortran else "C", limit=limit, codec=codec, shuffle=shuffle)
        _read_into(file, made.T if is_fortran else made)
        return made


def fromfile(file, dtype=float, count=-1, *, offset=0, limit=None, codec=None, shuffle="auto"):
    """A folded array of the bytes of a file: ``numpy.fromfile`` for binary files."""
    dtype = _sized(np.dtype(dtype))
    with contextlib.ExitStack() as stack:
        if not hasattr(file, "readinto"):
            file = stack.enter_context(open(file, "rb"))
        file.seek(offset, os.SEEK_CUR)
        count = operator.index(count)
        if count < 0:
            here = file.tell()
            count = (file.seek(0, os.SEEK_END) - here) // dtype.itemsize
            file.seek(here)
        made = empty(count, dtype, limit=limit, codec=codec, shuffle=shuffle)
        _read_into(file, made)
        return made


def _read_into(file, array):
    for chunk in _chunks(array):
        view = memoryview(chunk.view(np.uint8) if chunk.dtype != np.uint8 else chunk)
        try:
            done = 0
            while done < view.nbytes:
                count = file.readinto(view[done:])
                if not count:
                    raise EOFError("the file ends before the array is full")
                if not 0 < count <= view.nbytes - done:
                    raise OSError(f"the file says that it read {count} bytes of {view.nbytes - done}")
                done += count
        finally:
            view.release()
