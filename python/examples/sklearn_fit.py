"""A fit of gradient boosted trees by scikit-learn, plain and folded.

The samples are 150 000 visits with 160 features: 183 MiB. Most are counts, flags and shares of a
hundred, as such tables have them. They are in Fortran order, because the trees take one feature
after the other: a feature is a few pages then, and not a bit of all.
"""

import functools
import hashlib

import beside
import numpy as np
import ramfold
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

SEED = 20_261_127
SAMPLES = 150_000
FEATURES = 160
LIMIT = "8M"
#: Where all arrays fold, those that the trees go through again and again have to be in memory.
FOLD_LIMIT = "28M"


def feature(draw, number):
    """The values of a feature: counts, flags, shares in percent, and some measurements."""
    kind = number % 8
    if kind < 3:
        return draw.poisson(1 + number % 5, SAMPLES)
    if kind < 5:
        return draw.random(SAMPLES) < 0.006 * (1 + number)
    if kind < 7:
        return draw.integers(0, 101, SAMPLES) / 4
    return np.round(draw.normal(20, 5, SAMPLES), 1)


def samples(empty):
    """Features that ``empty(shape, dtype, order)`` has room for, and what is to be learnt."""
    draw = np.random.default_rng(SEED)
    x = empty((SAMPLES, FEATURES), np.float64, "F")
    score = np.zeros(SAMPLES)
    for number in range(FEATURES):
        x[:, number] = feature(draw, number)
        if number % 9 == 0:
            score += x[:, number] - x[:, number].mean()
    return x, score + draw.normal(0, 2, SAMPLES) > 0


def work(empty):
    x, y = samples(empty)
    # Early stopping would copy the samples to tell some of them apart.
    model = HistGradientBoostingClassifier(max_iter=6, early_stopping=False, random_state=SEED)
    some = np.ascontiguousarray(x[::30])
    # Threads that wait for each other take long where other programs run too.
    with threadpool_limits(1):
        model.fit(x, y)
        chances = model.predict_proba(some)[:, 1]
    result = {
        "right": float(((chances > 0.5) == y[::30]).mean()),
        "leaves": sum(len(trees[0].nodes) for trees in model._predictors),
        "chances": hashlib.sha256(chances.tobytes()).hexdigest()[:16],
    }
    return result, x


def run(way):
    if way == "fold":
        with ramfold.fold(limit=FOLD_LIMIT, shuffle=8):
            return work(np.empty)
    if way == "folded":
        return work(functools.partial(ramfold.empty, limit=LIMIT))
    return work(np.empty)


if __name__ == "__main__":
    beside.main(run, "plain", "folded", fold="fold")
