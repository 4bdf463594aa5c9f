"""Runs Python in a child, with the fault mode of this process."""

import os
import subprocess
import sys
import textwrap

import ramfold


def run(code, *arguments, seconds=60):
    """Runs ``code`` in another Python. Gives its exit status and what it printed."""
    environment = os.environ | {"RAMFOLD_FAULT_MODE": ramfold.fault_mode()}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *arguments]
    child = subprocess.run([*command, "-c", textwrap.dedent(code)],
                           capture_output=True, text=True, timeout=seconds, env=environment)
    return child.returncode, child.stdout + child.stderr
