"""Handlers that are installed later leave folding right."""

import unittest

import child
import ramfold

BEFORE = """
    import faulthandler, os, signal, sys, threading
    import numpy as np, ramfold
    array = ramfold.array(np.arange(1 << 18), limit="1M")
    def right():
        array.page_out()
        return bool((array == np.arange(1 << 18)).all())
"""


class Signals(unittest.TestCase):
    def child(self, code):
        return child.run(BEFORE + code)

    def test_handlers_come_and_go(self):
        status, text = self.child("""
    for round in range(1000):
        faulthandler.enable()
        if round % 100 == 0: assert right(), round
        signal.signal(signal.SIGBUS, lambda *_: None)
        if round % 100 == 1: assert right(), round
        faulthandler.disable()
        signal.signal(signal.SIGSEGV, lambda *_: None)
        if round % 100 == 2: assert right(), round
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        if round % 100 == 3: assert right(), round
    faulthandler.enable()
    assert right()
    print("done")
""")
        self.assertEqual((status, text), (0, "done\n"))

    def test_a_signal_that_is_sent_goes_to_the_handler_of_the_program(self):
        status, text = self.child("""
    got = []
    for number in (signal.SIGBUS, signal.SIGSEGV):
        signal.signal(number, lambda number, _: got.append(number))
        os.kill(os.getpid(), number)
        signal.raise_signal(number)
        assert right()
    print(len(got), right())
""")
        self.assertEqual((status, text), (0, "4 True\n"))

    def test_arguments_may_be_named(self):
        status, text = self.child("""
    signal.signal(signalnum=signal.SIGSEGV, handler=lambda *_: None)
    faulthandler.register(signum=signal.SIGUSR1)
    print(right())
""")
        self.assertEqual((status, text), (0, "True\n"))

    def test_a_child_that_is_forked_meanwhile_has_its_turn(self):
        status, text = self.child("""
    from ramfold import _signals
    asked = threading.Event()
    def work():
        with _signals._turn:
            asked.set()
            over.wait(0.2)
    over = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    asked.wait()
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
        self.assertEqual(status, 0)
        self.assertTrue(text.endswith("7\n"), text)

    def test_a_crash_is_reported_as_ever(self):
        for enable in ["faulthandler.enable()", "faulthandler.disable(); faulthandler.enable()"]:
            status, text = self.child(f"""
    {enable}
    assert right()
    import ctypes
    ctypes.string_at(8)
""")
            self.assertEqual(status, -11)
            self.assertEqual(text.count("Fatal Python error: Segmentation fault"), 1, text)

    def test_a_crash_without_a_handler_ends_as_ever(self):
        status, text = self.child("""
    faulthandler.enable()
    faulthandler.disable()
    assert right()
    import ctypes
    ctypes.string_at(8)
""")
        self.assertEqual((status, text), (-11, ""))


class Threads(unittest.TestCase):
    def test_a_thread_that_blocks_signals_is_refused_an_array(self):
        if ramfold.fault_mode() == "thread":
            self.skipTest("needs a mode in which signals bring pages in")
        status, text = child.run(BEFORE + """
    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            ramfold.zeros(1 << 18, limit="1M")
        except RuntimeError as error:
            print("blocked" in str(error))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
""")
        self.assertEqual((status, text), (0, "True\n"))


if __name__ == "__main__":
    unittest.main()
