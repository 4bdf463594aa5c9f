"""What pandas does with columns that fold gives the same as with plain ones.

Before an operation all pages of the columns are out, and their limit is a quarter of them.
"""

import io
import pickle
import unittest

import numpy as np
import ramfold

try:
    import pandas
except ImportError:
    pandas = None

COUNT = 1 << 17


def columns():
    rng = np.random.default_rng(11)
    number = rng.integers(0, 500, COUNT)
    price = rng.random(COUNT).round(3)
    price[::97] = np.nan
    day = np.datetime64("2024-01-01") + np.sort(rng.integers(0, 700, COUNT))
    return {"number": number, "price": price, "day": day.astype("M8[s]"),
            "flag": number % 3 == 0, "small": (number % 7).astype(np.int8)}


def frame(arrays):
    return pandas.DataFrame(arrays, copy=False)


def others():
    return pandas.DataFrame({"number": np.arange(0, 500, 2), "name": [f"n{n}" for n in range(250)]})


def as_file(write):
    def run(data):
        file = io.BytesIO()
        write(data, file)
        return file.getvalue()
    return run


def changed(change):
    """Changes the columns, and gives the whole frame."""
    def run(data):
        change(data)
        return data
    return run


def fill_in(data):
    data["price"] = data["price"].fillna(-1)


def set_where(data):
    data.loc[data["number"] > 400, "price"] = 9.5


OPERATIONS = {
    "groupby sum": lambda d: d.groupby("number")[["price", "small"]].sum(),
    "groupby several": lambda d: d.groupby(["small", "flag"])["price"].agg(["mean", "max", "count"]),
    "groupby transform": lambda d: d.groupby("small")["price"].transform("mean"),
    "sort_values": lambda d: d.sort_values(["number", "price"], kind="stable"),
    "merge": lambda d: d.merge(others(), on="number", how="left"),
    "rolling": lambda d: d["price"].rolling(50, min_periods=1).mean(),
    "ewm": lambda d: d["price"].ewm(span=20).mean(),
    "value_counts": lambda d: d["number"].value_counts().sort_index(),
    "describe": lambda d: d.describe(),
    "pivot_table": lambda d: d.pivot_table(index="small", columns="flag", values="price"),
    "query": lambda d: d.query("number > 250 and price < 0.5", engine="python"),
    "cumsum": lambda d: d[["number", "price"]].cumsum(),
    "rank": lambda d: d["price"].rank(),
    "isin": lambda d: d[d["number"].isin([3, 77, 400])],
    "quantile": lambda d: d[["number", "price"]].quantile([0.1, 0.5, 0.9]),
    "drop_duplicates": lambda d: d.drop_duplicates(["number", "small"]),
    "shift and diff": lambda d: d["price"].shift(3) - d["number"].diff(),
    "resample": lambda d: d.set_index("day")["price"].resample("7D").sum(),
    "cut": lambda d: pandas.cut(d["price"], 8).value_counts(),
    "concat": lambda d: pandas.concat([d, d.iloc[::-1]], ignore_index=True),
    "corr": lambda d: d[["number", "price", "small"]].corr(),
    "astype category": lambda d: d["number"].astype("category").cat.codes,
    "iloc": lambda d: d.iloc[[5, 90_000, -1]],
    "nlargest": lambda d: d.nlargest(20, "price"),
    "to_csv": as_file(lambda d, file: d.head(20_000).to_csv(file)),
    "pickle": lambda d: pickle.loads(pickle.dumps(d)),
    "to_numpy": lambda d: pandas.DataFrame(d[["number", "price"]].to_numpy()),
    "fillna": changed(fill_in),
    "loc with a mask": changed(set_where),
}


@unittest.skipIf(pandas is None, "skipped: needs pandas")
class Pandas(unittest.TestCase):
    def folded(self):
        limit = ramfold.Limit("1M")
        arrays = {name: ramfold.array(column, limit=limit) for name, column in columns().items()}
        for array in arrays.values():
            array.page_out()
        return arrays

    def test_operations(self):
        for name, operation in OPERATIONS.items():
            with self.subTest(name):
                arrays = self.folded()
                expected, found = operation(frame(columns())), operation(frame(arrays))
                self.compare(expected, found)

    def compare(self, expected, found):
        self.assertIs(type(found), type(expected))
        if isinstance(expected, bytes):
            self.assertEqual(found, expected)
        elif isinstance(expected, pandas.DataFrame):
            self.assertEqual(list(found.columns), list(expected.columns))
            for name in expected.columns:
                self.compare(expected[name], found[name])
        else:
            # pandas' own comparison refuses a column of a class that is not exactly ndarray.
            self.assertEqual(found.dtype, expected.dtype)
            self.assertTrue(found.index.equals(expected.index))
            self.assertTrue(found.equals(expected))

    def test_columns_are_shared_and_not_copied(self):
        arrays = self.folded()
        data = frame(arrays)
        price = data["price"].to_numpy()
        self.assertTrue(np.shares_memory(price, arrays["price"]))


if __name__ == "__main__":
    unittest.main()
