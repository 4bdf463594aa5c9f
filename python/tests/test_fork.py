"""Forked children have folded arrays, or end with a word."""

import signal
import unittest

import child
import ramfold

BEFORE = """
    import multiprocessing, os, sys, threading, warnings
    warnings.simplefilter("ignore")
    import numpy as np, ramfold
    expected = np.arange(1 << 18)
    array = ramfold.array(expected, limit="1M")
    small = ramfold.array(expected[:1000])
    def touch(index):
        return int(array[index])
    def same(sent):
        return bool((sent == expected).all())
    def fork(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""

HAS_ARRAYS = ramfold.fault_mode() == "protection"


class Fork(unittest.TestCase):
    def test_a_child_has_the_array_or_says_that_it_has_not(self):
        status, text = child.run(BEFORE + """
    def work():
        assert touch(70_000) == 70_000 and same(array)
        array[:] = 7
        assert (array == 7).all()
    array.page_out()
    print(fork(work), same(array))
""")
        self.assertEqual(status, 0)
        if HAS_ARRAYS:
            self.assertEqual(text, "0 True\n")
        else:
            self.assertIn(f"{-signal.SIGABRT} True\n", text)
            self.assertIn("RAMFOLD_FAULT_MODE=protection", text)

    def test_a_child_that_asks_for_a_buffer_is_answered(self):
        status, text = child.run(BEFORE + """
    def work():
        os.write(os.pipe()[1], array[:100])
    print(fork(work))
""")
        self.assertEqual(status, 0)
        if HAS_ARRAYS:
            self.assertEqual(text, "0\n")
        else:
            self.assertTrue("fork" in text or "Bad address" in text, text)

    def test_a_child_may_drop_arrays_and_make_its_own(self):
        status, text = child.run(BEFORE + """
    import gc
    def work():
        global array, small
        array = small = None
        gc.collect()
        own = ramfold.array(expected, limit="1M")
        own.page_out()
        assert same(own)
        small = ramfold.array(expected[:1000])
        small.page_out()
        assert small.sum() == expected[:1000].sum()
    print([fork(work) for _ in range(20)], same(array))
""")
        self.assertEqual((status, text), (0, f"{[0] * 20} True\n"))

    def test_a_child_keeps_no_file_of_its_parents_arrays(self):
        status, text = child.run(BEFORE + """
    def files():
        names = []
        for number in os.listdir("/proc/self/fd"):
            try:
                names.append(os.readlink(f"/proc/self/fd/{number}"))
            except FileNotFoundError:
                pass
        return sum("memfd:ramfold" in name for name in names)
    def work():
        assert files() == 0
    array.page_out()
    print(fork(work), same(array), files() == (ramfold.fault_mode() == "guards"))
""")
        self.assertEqual((status, text), (0, "0 True True\n"))

    def test_a_limit_of_the_parent_is_refused(self):
        status, text = child.run(BEFORE + """
    limit = ramfold.Limit("1M")
    its = ramfold.array(expected, limit=limit)
    def work():
        try:
            ramfold.zeros(1000, limit=limit)
        except RuntimeError as error:
            assert "fork" in str(error), error
            assert not ramfold.zeros(1000, limit=ramfold.Limit("1M")).any()
            return
        raise SystemError("it was made")
    print(fork(work), same(its))
""")
        self.assertEqual((status, text), (0, "0 True\n"))

    def test_forks_in_the_middle_of_everything(self):
        status, text = child.run(BEFORE + """
    over = threading.Event()
    others = [ramfold.array(expected, limit="1M") for _ in range(2)]
    def load(other):
        while not over.is_set():
            other += 1
            other.page_out()
            other -= 1
    threads = [threading.Thread(target=load, args=(other,)) for other in others]
    for thread in threads: thread.start()
    statuses = [fork(lambda: None) for _ in range(100)]
    over.set()
    for thread in threads: thread.join()
    print(set(statuses), same(array), all(map(same, others)))
""")
        self.assertEqual((status, text), (0, "{0} True True\n"))

    def test_pools(self):
        status, text = child.run(BEFORE + """
    start = "fork" if ramfold.fault_mode() == "protection" else "forkserver"
    if __name__ == "__main__":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(all(pool.map(same, [array] * 4)))
            if start == "fork":
                print(pool.map(touch, [1, 70_000, 200_000]))
""")
        expected = "True\n" + ("[1, 70000, 200000]\n" if HAS_ARRAYS else "")
        self.assertEqual((status, text), (0, expected))


if __name__ == "__main__":
    unittest.main()
