"""The examples: the same result as without ramfold, in at most half of the memory.

A package that is not here skips its example. With CI=true it is a failure instead. PyTorch takes
gigabytes, so its example is only run if RAMFOLD_TEST_TORCH is 1.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ramfold

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"

#: What a folded way may take of the plain way's growth and of its peak.
SHARE_MAX = 0.5


def ways(name, *packages):
    """Runs an example. Gives what it says of each way, or skips the test."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            skip(package)
    environment = os.environ | {"RAMFOLD_FAULT_MODE": ramfold.fault_mode()}
    command = [sys.executable, EXAMPLES / name, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def skip(what):
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{what} is missing, and with CI=true nothing may be")
    print(f"skipped: needs {what}", file=sys.stderr)
    raise unittest.SkipTest(f"needs {what}")


class Examples(unittest.TestCase):
    def assert_half(self, rows, names):
        plain, *others = rows
        self.assertEqual([row["way"] for row in rows], names)
        for row in others:
            with self.subTest(row["way"]):
                self.assertEqual(row["result"], plain["result"])
                self.assertGreater(row["growth"], 0)
                self.assertLessEqual(row["growth"], SHARE_MAX * plain["growth"])
                self.assertLessEqual(row["peak"], SHARE_MAX * plain["peak"])

    def with_fold(self):
        return ["plain", "folded"] + ["fold"] * (ramfold.fault_mode() == "thread")

    def test_a_group_by_of_pandas(self):
        self.assert_half(ways("pandas_groupby.py", "pandas"), self.with_fold())

    def test_a_fit_of_scikit_learn(self):
        self.assert_half(ways("sklearn_fit.py", "sklearn"), self.with_fold())

    def test_a_data_set_of_pytorch(self):
        if os.environ.get("RAMFOLD_TEST_TORCH") != "1":
            # It is not missing in CI: it is not asked for.
            print("skipped: needs RAMFOLD_TEST_TORCH=1 and PyTorch", file=sys.stderr)
            self.skipTest("needs RAMFOLD_TEST_TORCH=1 and PyTorch")
        self.assert_half(ways("torch_dataset.py", "torch"), ["plain", "folded"])

    def test_a_cache_in_front_of_sqlite(self):
        rows = ways("sqlite_cache.py", "sqlite3")
        self.assert_half(rows, ["plain", "folded", "limited"])
        self.assertLess(rows[2]["growth"], rows[1]["growth"])

    def test_another_result_is_told(self):
        code = ("import beside, sys\n"
                "beside.main(lambda way: (way, bytearray(8 << 20)), 'one', 'other')\n")
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "differs.py")
        path.write_text(code)
        environment = os.environ | {"PYTHONPATH": str(EXAMPLES)}
        done = subprocess.run([sys.executable, path], capture_output=True, text=True,
                              timeout=60, env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another result than the plain way's: other", done.stderr)

    def test_memory_is_counted(self):
        # The peak stays for a hundred looks, so that a busy machine does not miss it.
        code = ("import beside, time\n"
                "def run(way):\n"
                "    size = {'small': 32 << 20, 'large': 64 << 20}[way]\n"
                "    kept = bytes(size)\n"
                "    peak = b'7' * size\n"
                "    kept = bytearray(kept)\n"
                "    time.sleep(0.2)\n"
                "    return 7, kept\n"
                "beside.main(run, 'small', 'large')\n")
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "grows.py")
        path.write_text(code)
        environment = os.environ | {"PYTHONPATH": str(EXAMPLES)}
        done = subprocess.run([sys.executable, path, "--json"], capture_output=True,
                              text=True, timeout=60, env=environment, check=True)
        small, large = json.loads(done.stdout)
        self.assertAlmostEqual(small["growth"] / (32 << 20), 1, delta=0.1)
        self.assertAlmostEqual(large["growth_ratio"], 2, delta=0.2)
        self.assertGreater(small["peak"], 1.8 * small["growth"])


if __name__ == "__main__":
    unittest.main()
