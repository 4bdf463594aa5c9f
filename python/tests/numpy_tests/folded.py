"""A plugin of pytest: all arrays of the tests fold, and their pages leave every 10 ms."""

import os
import threading

import pytest
import ramfold

#: Fewer would show that the tests did not touch folded memory. Others than those of `python/test`
#: may be few.
PAGES_LEAST = 1 if "RAMFOLD_NUMPY_TESTS" in os.environ else 100_000

# Many small arrays: each takes 256 KiB of the room.
fold = ramfold.fold(limit="8M", room="256G", least=0)
ended = threading.Event()


failures = []


def leave():
    try:
        while not ended.wait(0.01):
            fold.page_out()
    except BaseException as failure:
        failures.append(failure)


leaving = threading.Thread(target=leave, daemon=True)


def pytest_configure(config):
    fold.__enter__()
    leaving.start()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    ended.set()
    leaving.join()
    fold.__exit__()
    stats = fold.stats()
    print(f"\n{stats['pages_out']} pages left and {stats['pages_in']} came back, "
          f"by {stats['faults']} faults")
    is_few = min(stats["pages_out"], stats["pages_in"]) < PAGES_LEAST
    if exitstatus == 0 and (is_few or failures):
        print(*failures or [f"fewer than {PAGES_LEAST}"])
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
