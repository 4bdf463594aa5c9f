"""Sizes in bytes, as a number or as text such as ``"256M"``."""

import operator

_MOST = 1 << 62
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(value, what="a size"):
    """The bytes that ``value`` stands for."""
    if isinstance(value, str):
        text = value.strip().upper().removesuffix("B").removesuffix("I").strip()
        unit = text[-1:] if text[-1:] in "KMGT" else ""
        try:
            found = int(float(text[: len(text) - len(unit)]) * _UNITS[unit])
        except (ValueError, OverflowError):
            raise ValueError(f"{what} is a number of bytes or text such as '256M', not {value!r}")
    else:
        try:
            found = operator.index(value)
        except TypeError:
            raise TypeError(f"{what} is a number of bytes or text such as '256M', not {value!r}")
    if found < 0:
        raise ValueError(f"{what} is not negative: {value!r}")
    if found > _MOST:
        raise ValueError(f"{what} is at most 2**62 bytes, not {value!r}")
    return found
