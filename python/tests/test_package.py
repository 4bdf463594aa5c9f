"""What is installed: the command, the types, and the names that are handed out."""

import ast
import importlib.metadata
import pathlib
import subprocess
import sys
import unittest

import ramfold


class Package(unittest.TestCase):
    def test_it_is_the_installed_one(self):
        version = importlib.metadata.version("ramfold")
        self.assertEqual(ramfold.__version__, version)
        self.assertTrue(pathlib.Path(ramfold.__file__).is_relative_to(sys.prefix))

    def test_the_command_is_there(self):
        command = pathlib.Path(sys.prefix, "bin", "ramfold")
        told = subprocess.run([command, "--version"], capture_output=True, text=True)
        self.assertEqual(told.stdout.split(), ["ramfold", ramfold.__version__])
        helped = subprocess.run([command, "run", "--help"], capture_output=True, text=True)
        self.assertIn("--limit", helped.stdout)

    def test_the_licences_of_others_are_there(self):
        files = importlib.metadata.files("ramfold")
        notices = [file for file in files if file.name == "NOTICES"]
        text = notices[0].read_text()
        for name in ["LZ4", "Zstandard", "zlib-rs", "pyo3"]:
            self.assertIn(name, text)

    def test_types_are_of_all_that_is_handed_out(self):
        folder = pathlib.Path(ramfold.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        stub = ast.parse((folder / "__init__.pyi").read_text())
        named = {node.name for node in stub.body if hasattr(node, "name")}
        self.assertEqual(named, set(ramfold.__all__))
        for node in stub.body:
            if not isinstance(node, ast.ClassDef):
                continue
            for member in node.body:
                name = getattr(member, "name", None) or member.target.id
                if name != "store":
                    self.assertTrue(hasattr(getattr(ramfold, node.name), name), name)

    def test_everything_is_documented(self):
        for name in ramfold.__all__:
            self.assertTrue(getattr(ramfold, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
