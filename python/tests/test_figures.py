"""The program that measures works, in its short form. What it measures is nobody's promise here."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ramfold

FIGURES = pathlib.Path(__file__).resolve().parents[1] / "bench" / "figures.py"


class Figures(unittest.TestCase):
    def test_every_group_is_measured_and_what_lacks_is_named(self):
        environment = os.environ | {"RAMFOLD_FAULT_MODE": ramfold.fault_mode()}
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, FIGURES, "--quick", "--record", directory]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                                  env=environment)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            record = json.loads(next(pathlib.Path(directory).iterdir()).read_text())
        self.assertEqual(record["study"], "python")
        self.assertEqual(record["machine"]["fault_mode"], ramfold.fault_mode())
        for row in record["rows"] + record["runs"]:
            self.assertIn(row["group"], ["values", "pages", "limit", "store"])
        found = {(row["group"], row.get("system") or row.get("array")) for row in record["rows"]}
        wanted = {("pages", "ids"), ("pages", "noise"), ("limit", "ramfold"), ("store", "Store")}
        self.assertLessEqual(wanted, found)
        self.assertIn("missing: lab", done.stderr)
        for package in ("blosc2", "lz4", "diskcache"):
            if importlib.util.find_spec(package) is None:
                self.assertIn(f"missing: {package}", done.stderr)

    def test_values_are_as_hard_to_compress_as_it_says(self):
        code = ("import data\n"
                "for kind, (_, about, most) in data.VALUES.items():\n"
                "    length, shrunk = data.shrunk(kind)\n"
                "    assert 0.9 * most <= shrunk <= most, (kind, shrunk)\n"
                "    assert 0.95 * about <= length <= 1.05 * about, (kind, length)\n")
        environment = os.environ | {"PYTHONPATH": str(FIGURES.parent)}
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


if __name__ == "__main__":
    unittest.main()
