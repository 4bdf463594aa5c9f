"""A mapping from bytes to bytes, compressed and packed."""

from collections.abc import ItemsView, MutableMapping, ValuesView

from . import _ramfold
from ._process import process
from ._sizes import size as _size

__all__ = ["Store", "TypedStore"]

_NONE = object()


class Store(_ramfold.Store, MutableMapping):
    """A dictionary of ``bytes`` whose values are compressed and packed into few pages.

    ``codec`` compresses the values: ``"lz4"``, ``"zstd"``, ``"zstd:3"`` and so on, or ``None``.
    The default is LZ4 with an acceleration of 8. Values are set faster than with ``"lz4"``, and
    take a little more.

    ``dictionary`` is what small values have in common. ``"train"`` makes one of some of the first
    1000 values. Bytes are used as they are, for example those of ``store.dictionary``. ``None`` is
    for no dictionary.

    ``limit`` is how many bytes of memory the compressed values may take, as a number or as text
    such as ``"256M"``. Keys come on top, and so does the table that finds them: ``stats()`` says
    how much. When the store is full, the value goes that came first and was not read since, and
    ``on_evict(key, value)`` is called. If that raises an exception, the value stays. A value has at
    most 1 MiB.

    All methods may be called by any thread. Other threads run while values of more than 4 KiB,
    or with other codecs than LZ4 and LZO of more than 1 KiB, are compressed or decompressed. An
    iteration is over the keys that there were when it began. A forked child cannot use the store of
    its parent.
    """

    def __new__(cls, codec="lz4:8", *, dictionary="train", limit=None, on_evict=None):
        limit = _limit(limit)
        if on_evict is not None and not callable(on_evict):
            raise TypeError("on_evict is called with a key and a value")
        if isinstance(dictionary, str) and dictionary != "train":
            raise ValueError(f"a dictionary is bytes, 'train' or None, not {dictionary!r}")
        if not isinstance(dictionary, (str, bytes, bytearray, memoryview, type(None))):
            raise TypeError(f"a dictionary is bytes, 'train' or None, not {dictionary!r}")
        given = None if dictionary is None or dictionary == "train" else bytes(dictionary)
        if given is not None and codec is None:
            raise ValueError("a dictionary is of no use without a codec")
        return super().__new__(cls, process().store_frames(), codec, given, dictionary == "train",
                               limit, on_evict)

    def __iter__(self):
        return iter(self._keys())

    @property
    def limit(self):
        """Bytes of memory that compressed values may take; ``None`` is no limit. It may be set."""
        return self._limit() or None

    @limit.setter
    def limit(self, value):
        self._set_limit(_limit(value))

    @property
    def dictionary(self):
        """The bytes that values have in common; ``None`` if there is no dictionary (yet)."""
        return self._dictionary()

    def items(self):
        """Keys and values, those left out that are deleted meanwhile."""
        return _Items(self)

    def values(self):
        """Values, those left out that are deleted meanwhile."""
        return _Values(self)

    def pop(self, key, default=_NONE):
        """Delete a key, and return its value; ``default`` if there is no such key."""
        value = self._take(key)
        if value is not None:
            return value
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self):
        """Delete any key, and return it with its value."""
        item = self._take_any()
        if item is None:
            raise KeyError("the store is empty")
        return item

    def setdefault(self, key, default=None):
        """The value of a key. If there is no such key, it gets ``default``."""
        value = self.get(key)
        return self._set_if_absent(key, default) if value is None else value

    def __repr__(self):
        return f"<ramfold.Store of {len(self)} values>"

    def __reduce__(self):
        raise TypeError("a Store belongs to its process: send what is in it")


def _limit(value):
    """The number that stands for a limit; 0 stands for none."""
    if value is None:
        return 0
    found = _size(value, "a limit")
    if found == 0:
        raise ValueError("a limit is at least one byte; None is for no limit")
    return found


class _Items(ItemsView):
    def __iter__(self):
        get = self._mapping.get
        for key in self._mapping:
            value = get(key)
            if value is not None:
                yield key, value


class _Values(ValuesView):
    def __contains__(self, value):
        return any(found is value or found == value for found in self)

    def __iter__(self):
        for _, value in self._mapping.items():
            yield value


class TypedStore(MutableMapping):
    """A :class:`Store` of other types: ``dumps`` makes bytes of a value, and ``loads`` a value of
    bytes. ``key_dumps`` and ``key_loads`` do so for keys; without them keys are text.

    >>> import json
    >>> people = TypedStore(Store(), lambda v: json.dumps(v).encode(), json.loads)
    >>> people["ann"] = {"age": 7}
    >>> people["ann"]
    {'age': 7}
    """

    def __init__(self, store, dumps, loads, key_dumps=str.encode, key_loads=bytes.decode):
        self.store = store
        self._dumps = dumps
        self._loads = loads
        self._key_dumps = key_dumps
        self._key_loads = key_loads

    def __len__(self):
        return len(self.store)

    def __iter__(self):
        return map(self._key_loads, self.store)

    def __contains__(self, key):
        return self._key_dumps(key) in self.store

    def __getitem__(self, key):
        value = self.store.get(self._key_dumps(key))
        if value is None:
            raise KeyError(key)
        return self._loads(value)

    def get(self, key, default=None):
        """The value of a key; ``default`` if there is no such key."""
        value = self.store.get(self._key_dumps(key))
        return default if value is None else self._loads(value)

    def __setitem__(self, key, value):
        self.store[self._key_dumps(key)] = self._dumps(value)

    def __delitem__(self, key):
        try:
            del self.store[self._key_dumps(key)]
        except KeyError:
            raise KeyError(key) from None

    def items(self):
        """Keys and values, those left out that are deleted meanwhile."""
        return _TypedItems(self)

    def values(self):
        """Values, those left out that are deleted meanwhile."""
        return _Values(self)

    def clear(self):
        """Delete every key that there is now."""
        self.store.clear()

    def pop(self, key, default=_NONE):
        """Delete a key, and return its value; ``default`` if there is no such key."""
        name = self._key_dumps(key)
        value = self.store.pop(name, None)
        if value is not None:
            return self._loaded(name, value, self._loads)
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self):
        """Delete any key, and return it with its value."""
        name, value = self.store.popitem()
        return self._loaded(name, value, lambda value: (self._key_loads(name), self._loads(value)))

    def setdefault(self, key, default=None):
        """The value of a key. If there is no such key, it gets ``default``."""
        name = self._key_dumps(key)
        value = self.store.get(name)
        if value is None:
            value = self.store.setdefault(name, self._dumps(default))
        return self._loads(value)

    def _loaded(self, name, value, loads):
        """What was taken out. It is put back if it cannot be read."""
        try:
            return loads(value)
        except BaseException:
            self.store.setdefault(name, value)
            raise


class _TypedItems(ItemsView):
    def __iter__(self):
        typed = self._mapping
        for name, value in typed.store.items():
            yield typed._key_loads(name), typed._loads(value)
