"""Functions of Python that install handlers of SIGBUS and SIGSEGV.

By one of these signals a folded page comes in. A handler that is installed later would keep the
signal for itself. So these functions are wrapped: what they install stands behind ours, and gets
each signal that no folded page caused.
"""

import faulthandler
import functools
import os
import signal
import threading

from . import _ramfold

_SIGNALS = (signal.SIGBUS, signal.SIGSEGV)

# Two threads that change handlers would step over each other.
_turn = threading.RLock()
# A child has no thread that would give up the turn that another thread of its parent had.
os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release,
                    after_in_child=_turn.release)


def _behind(function, concerns=lambda *arguments, **named: True):
    @functools.wraps(function)
    def call(*arguments, **named):
        if not concerns(*arguments, **named):
            return function(*arguments, **named)
        with _turn:
            try:
                _ramfold.step_aside()
                return function(*arguments, **named)
            finally:
                _ramfold.step_back()
    return call


def _is_ours(*arguments, **named):
    number = arguments[0] if arguments else named.get("signalnum", named.get("signum"))
    return number in _SIGNALS


def wrap():
    """Wrap them, once."""
    if hasattr(signal.signal, "_ramfold"):
        return
    faulthandler.enable = _behind(faulthandler.enable)
    faulthandler.disable = _behind(faulthandler.disable)
    faulthandler.register = _behind(faulthandler.register, _is_ours)
    faulthandler.unregister = _behind(faulthandler.unregister, _is_ours)
    signal.signal = _behind(signal.signal, _is_ours)
    signal.signal._ramfold = True
