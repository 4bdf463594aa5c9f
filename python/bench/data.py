"""What is folded and stored for the figures: arrays of five kinds, and values of two.

Each has a seed. With the same NumPy it gives the same bytes everywhere.
"""

import functools
import random
import zlib

import numpy as np

SEED = 20_261_127

FIRST = ("ada alan barbara charles dennis donald edsger frances grace guido hedy ivan joan john "
         "karen ken leslie linus margaret niklaus radia richard robin shafi tony").split()
LAST = ("adams allen backus booch dijkstra goldwasser hamilton hoare hopper kay knuth lamarr "
        "lamport liskov lovelace mccarthy milner perlman ritchie sammet thompson turing").split()

#: The element sizes of the arrays below.
ELEMENTS = {"ids": 8, "image": 4, "text": 4, "categories": 4, "noise": 8}


def ids(size, draw):
    """Sorted numbers with geometric gaps of 500 in the mean, as keys of a table have them."""
    return np.cumsum(draw.geometric(1 / 500, size // 8))


def image(size, draw):
    """A picture of 12 waves between 0 and 1, with noise of 1/2048."""
    side = int((size // 4) ** 0.5)
    row = np.arange(side, dtype=np.float32)
    picture = np.zeros((side, side), np.float32)
    for _ in range(12):
        x, y = draw.uniform(-0.03, 0.03, 2)
        phase = draw.uniform(0, 2 * np.pi)
        wave = np.sin(np.add.outer(y * row, x * row + phase), dtype=np.float32)
        picture += wave
    picture = 0.5 + picture / 24
    picture += draw.standard_normal(picture.shape, np.float32) / 2048
    return picture.ravel()


def text(size, draw):
    """Names such as ``grace.hopper``, in NumPy's type of 16 characters of 4 bytes."""
    names = np.array([f"{first}.{last}"[:16] for first in FIRST for last in LAST], "U16")
    return names[draw.integers(0, len(names), size // 64)]


def categories(size, draw):
    """Numbers of categories, few of which are frequent, in runs of 6 in the mean."""
    count = size // 4
    values = np.minimum(draw.zipf(1.5, count // 5), 5000).astype(np.int32)
    return np.repeat(values, draw.geometric(1 / 6, len(values)))[:count].copy()


def noise(size, draw):
    """Normal deviates of 64 bits, which nothing compresses."""
    return draw.standard_normal(size // 8)


def array(name, size):
    """About ``size`` bytes of a kind."""
    make = {"ids": ids, "image": image, "text": text, "categories": categories, "noise": noise}
    return make[name](size, np.random.default_rng(SEED))


def keys(count):
    """Keys of 16 random bytes."""
    draw = random.Random(SEED)
    for _ in range(count):
        yield draw.randbytes(16)


def small(draw):
    """A session of 300 bytes or so, of which tokens and numbers are more than half."""
    return (b'{"user":%d,"token":"%s","name":"%s.%s","seen":%d,"address":"10.%d.%d.%d","cart":['
            b'{"sku":%d,"count":1},{"sku":%d,"count":%d},{"sku":%d,"count":%d}],"admin":false,'
            b'"csrf":"%s"}' % (
                draw.getrandbits(31), draw.randbytes(28).hex().encode(),
                draw.choice(FIRST).encode(), draw.choice(LAST).encode(),
                1_700_000_000 + draw.getrandbits(24), draw.getrandbits(8), draw.getrandbits(8),
                draw.getrandbits(8), draw.getrandbits(30), draw.getrandbits(30),
                draw.getrandbits(3), draw.getrandbits(30), draw.getrandbits(3),
                draw.randbytes(20).hex().encode()))


def line(draw):
    """A line of a purchase."""
    return (b'{"article":%d,"name":"%s %s","cents":%d,"count":%d,"shipped":"2026-%02d-%02d"}' % (
        draw.getrandbits(40), draw.choice(FIRST).encode(), draw.choice(LAST).encode(),
        draw.getrandbits(17), 1 + draw.getrandbits(2), 1 + draw.getrandbits(3),
        1 + draw.getrandbits(4)))


def large(draw):
    """A purchase of 2 KB or so, whose lines are some of a hundred thousand."""
    return b'{"id":"%s","lines":[%s]}' % (
        draw.randbytes(16).hex().encode(), b",".join(draw.choices(lines(), k=21)))


@functools.cache
def lines():
    draw = random.Random(SEED)
    return [line(draw) for _ in range(100_000)]


#: Values by name: what makes one, their length about, and how much zlib's level 1 may shrink them.
VALUES = {"300 B": (small, 300, 1.5), "2 KB": (large, 2048, 3.0)}


def values(name, count):
    """Values of a kind, none twice."""
    draw, (make, _, _) = random.Random(SEED + 1), VALUES[name]
    for _ in range(count):
        yield make(draw)


def shrunk(name, count=2000):
    """The mean length of values, and how much zlib's level 1 shrinks each in the mean."""
    some = list(values(name, count))
    length = sum(map(len, some))
    return length / count, length / sum(len(zlib.compress(value, 1)) for value in some)
