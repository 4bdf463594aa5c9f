"""The examples of the documents print what the documents say."""

import os
import pathlib
import re
import tempfile
import unittest

import child
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text output\n(.*?)```\n)?", re.DOTALL)


def examples(path):
    return EXAMPLE.findall((ROOT / path).read_text())


class Examples(unittest.TestCase):
    def test_the_manual(self):
        found = examples("docs/python.md")
        self.assertGreaterEqual(len(found), 4)
        for code, output in found:
            with self.subTest(code):
                self.assertEqual(child.run(code), (0, output))

    def test_the_readmes(self):
        for path in ["README.md", "python/README.md"]:
            found = examples(path)
            self.assertTrue(found, path)
            for code, _ in found:
                with self.subTest(path), tempfile.TemporaryDirectory() as directory:
                    ids = np.arange(1 << 20)
                    np.save(os.path.join(directory, "ids.npy"), ids)
                    status, text = child.run(f"import os\nos.chdir({directory!r})\n{code}")
                    self.assertEqual((status, text), (0, ""))
                    back = np.load(os.path.join(directory, "ids.npy"))
                    np.testing.assert_array_equal(back, ids + 1)


if __name__ == "__main__":
    unittest.main()
