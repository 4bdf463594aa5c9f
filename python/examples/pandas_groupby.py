"""A group-by of pandas over a table of orders, plain and folded.

The table has 2 million orders in 12 columns of 64-bit numbers: 183 MiB. In the folded way its
columns are folded arrays with one limit for all of them. In the way "fold" the code is the plain
one, and all arrays that NumPy makes fold, those of pandas included.
"""

import functools

import beside
import numpy as np
import pandas as pd
import ramfold

SEED = 20_261_127
ROWS = 2_000_000
#: Rows that are drawn at a time.
SOME = 100_000
LIMIT = "8M"

#: The columns, and how some rows of each are drawn.
COLUMNS = {
    "order": lambda draw, start, count: np.arange(start, start + count),
    "time": lambda draw, start, count: 1_700_000_000_000 + 250 * start
    + np.sort(draw.integers(0, 250 * count, count)),
    "customer": lambda draw, start, count: np.minimum(draw.zipf(1.3, count), 50_000),
    "shop": lambda draw, start, count: draw.integers(0, 400, count),
    "country": lambda draw, start, count: np.minimum(draw.zipf(2.0, count), 40),
    "article": lambda draw, start, count: np.minimum(draw.zipf(1.4, count), 20_000),
    "quantity": lambda draw, start, count: draw.geometric(0.5, count),
    "cents": lambda draw, start, count: 100 * draw.integers(1, 200, count) - 1,
    "discount": lambda draw, start, count: 5 * draw.integers(0, 4, count),
    "shipping": lambda draw, start, count: 490 * (draw.random(count) < 0.4).astype(np.int64),
    "returned": lambda draw, start, count: (draw.random(count) < 0.03).astype(np.int64),
    "stars": lambda draw, start, count: draw.integers(1, 6, count),
}


def table(empty):
    """The orders, with columns that ``empty(length, dtype)`` makes."""
    draw = np.random.default_rng(SEED)
    columns = {name: empty(ROWS, np.int64) for name in COLUMNS}
    for start in range(0, ROWS, SOME):
        for name, rows in COLUMNS.items():
            columns[name][start:start + SOME] = rows(draw, start, SOME)
    # Without copy=False pandas would copy the columns to memory of its own.
    return pd.DataFrame(columns, copy=False)


def work(empty):
    orders = table(empty)
    shops = orders.groupby("shop").agg(
        orders=("order", "count"), cents=("cents", "sum"), quantity=("quantity", "sum"),
        shipping=("shipping", "sum"), returned=("returned", "mean"), stars=("stars", "mean"),
        last=("time", "max"))
    countries = orders.groupby("country")[["cents", "discount"]].sum()
    best = shops.sort_values("cents", ascending=False).head(3)
    result = {
        "best shops": best.reset_index().to_dict("records"),
        "cents by country": countries["cents"].head(3).to_dict(),
        "of all shops": int(pd.util.hash_pandas_object(shops).sum() % (1 << 53)),
    }
    return result, orders


def run(way):
    if way == "fold":
        with ramfold.fold(limit=LIMIT, shuffle=8):
            return work(np.empty)
    if way == "folded":
        limit = ramfold.Limit(LIMIT, shuffle=8)
        return work(functools.partial(ramfold.empty, limit=limit))
    return work(np.empty)


if __name__ == "__main__":
    beside.main(run, "plain", "folded", fold="fold")
