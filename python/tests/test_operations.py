"""Every operation gives the same with a folded array as with a plain one.

Before an operation all pages of the array are out, and its limit is a quarter of it. So each
operation meets pages that are not there.
"""

import asyncio
import hashlib
import io
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import zlib

import numpy as np
import ramfold

COUNT = 1 << 19  # 4 MiB of int64
LIMIT = 1 << 20


def plain():
    return np.arange(COUNT, dtype=np.int64) * 7919 % 100_003


def folded():
    array = ramfold.array(plain(), limit=LIMIT)
    array.page_out()
    return array


def in_file(write):
    with tempfile.TemporaryFile() as file:
        write(file)
        file.seek(0)
        return file.read()


def through_socket(send):
    """What arrives at the other end of a socket."""
    ours, theirs = socket.socketpair()
    got = bytearray()

    def receive():
        while part := theirs.recv(1 << 20):
            got.extend(part)

    receiver = threading.Thread(target=receive)
    receiver.start()
    try:
        send(ours)
    finally:
        ours.close()
        receiver.join()
        theirs.close()
    return bytes(got)


def write_all(file, array):
    view = memoryview(array).cast("B")
    done = 0
    while done < len(view):
        done += os.write(file.fileno(), view[done:])


def npz(array):
    file = io.BytesIO()
    np.savez(file, array=array)
    file.seek(0)
    return np.load(file)["array"]


def text(array):
    file = io.BytesIO()
    np.savetxt(file, array[:1000], fmt="%d")
    return file.getvalue()


def saved(array):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "a.npy")
        np.save(path, array)
        return np.load(path)


def out_of_band(array):
    buffers = []
    data = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)

    def write(file):
        for buffer in buffers:
            file.write(buffer.raw())

    parts = in_file(write)
    return pickle.loads(data, buffers=[parts])


def pickled_to_file(protocol):
    def run(array):
        with tempfile.TemporaryFile() as file:
            pickle.dump(array, file, protocol=protocol)
            file.seek(0)
            return pickle.load(file)
    return run


def connection(array):
    ours, theirs = multiprocessing.Pipe()
    sender = threading.Thread(target=lambda: ours.send(array))
    sender.start()
    got = theirs.recv()
    sender.join()
    return got


def connection_bytes(array):
    ours, theirs = multiprocessing.Pipe()
    sender = threading.Thread(target=lambda: ours.send_bytes(array))
    sender.start()
    got = theirs.recv_bytes()
    sender.join()
    return got


def to_process(array):
    run = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    command = [sys.executable, "-c", run]
    return subprocess.run(command, input=memoryview(array), capture_output=True).stdout


def stream(array):
    async def send():
        got = bytearray()
        ended = asyncio.Event()

        async def serve(reader, writer):
            while part := await reader.read(1 << 20):
                got.extend(part)
            writer.close()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(memoryview(array).cast("B"))
        await writer.drain()
        writer.close()
        await ended.wait()
        server.close()
        return bytes(got)
    return asyncio.run(send())


def mapped(array):
    with tempfile.NamedTemporaryFile() as file:
        to = np.memmap(file.name, dtype=array.dtype, shape=array.shape, mode="w+")
        to[:] = array
        to.flush()
        return np.fromfile(file.name, dtype=array.dtype)


def pwritev(array):
    def write(file):
        os.pwritev(file.fileno(), [array[:50_000], array[70_000:90_000]], 0)
    return in_file(write)


# The rows of the document's table that only read the array.
SYSTEM = {
    "np.savez": npz,
    "np.savetxt": text,
    "np.save": saved,
    "tobytes": lambda a: a.tobytes(),
    "tofile": lambda a: in_file(lambda file: a.tofile(file)),
    "tofile of a slice": lambda a: in_file(lambda file: a[5:-5].tofile(file)),
    "tofile of every third": lambda a: in_file(lambda file: a[::3].tofile(file)),
    "tofile of a transposed":
        lambda a: in_file(lambda file: a[:40_000].reshape(8, -1).T.tofile(file)),
    "tofile as text": lambda a: in_file(lambda file: a[:999].tofile(file, ",")),
    "BytesIO.write": lambda a: (lambda f: (f.write(a), f.getvalue())[1])(io.BytesIO()),
    "hashlib": lambda a: hashlib.sha256(a).hexdigest(),
    "zlib": lambda a: zlib.crc32(a),
    "pickle.dumps 2": lambda a: pickle.loads(pickle.dumps(a, protocol=2)),
    "pickle.dumps 4": lambda a: pickle.loads(pickle.dumps(a, protocol=4)),
    "pickle.dumps 5": lambda a: pickle.loads(pickle.dumps(a, protocol=5)),
    "pickle.dumps of a transposed": lambda a: pickle.loads(pickle.dumps(a.reshape(64, -1).T, 5)),
    "pickle.dump 4": pickled_to_file(4),
    "pickle.dump 5": pickled_to_file(5),
    "pickle out of band": out_of_band,
    "Connection.send": connection,
    "Connection.send_bytes": connection_bytes,
    "memmap": mapped,
    "file.write": lambda a: in_file(lambda file: file.write(a)),
    "file.write, unbuffered": lambda a: in_file(lambda file: write_all(file, a)),
    "file.write of a view": lambda a: in_file(lambda file: file.write(a[7:70_007])),
    "file.write of a memoryview": lambda a: in_file(lambda file: file.write(memoryview(a))),
    "os.write": lambda a: in_file(lambda file: os.write(file.fileno(), a[:100_000])),
    "os.pwritev": pwritev,
    "socket.sendall": lambda a: through_socket(lambda to: to.sendall(a)),
    "subprocess.run": to_process,
    "StreamWriter.write": stream,
    "np.frombuffer": lambda a: np.frombuffer(a, dtype=np.int32)[::1000].copy(),
    "bytes": lambda a: bytes(a[:3000]),
    "bytearray": lambda a: bytearray(a[1000:3000]),
    "memoryview.tobytes": lambda a: memoryview(a[::-5]).tobytes(),
    "pinned, by its address": lambda a: by_address(a),
}


def by_address(array):
    """What a library does that has only the address."""
    def write(file):
        if isinstance(array, ramfold.ndarray):
            with array.pinned() as there:
                write_all(file, there)
        else:
            write_all(file, array)
    return in_file(write)


def matrix(array):
    return array[:62_500].reshape(250, 250)


def changed(change):
    """Changes the array in place, and gives it."""
    def run(array):
        change(array)
        return array
    return run


def times(array, by):
    array *= by


def masked(array):
    array[array % 3 == 0] = -1


COMPUTED = {
    "sum": lambda a: a.sum(),
    "sum by axis": lambda a: a.reshape(1024, -1).sum(axis=0),
    "mean, std, var": lambda a: np.array([a.mean(), a.std(), a.var()]),
    "min, max, argmin, argmax": lambda a: np.array([a.min(), a.max(), a.argmin(), a.argmax()]),
    "any, all": lambda a: np.array([a.any(), a.all()]),
    "arithmetic": lambda a: (a + 1) * 3 - a // 7,
    "comparison": lambda a: a > 50_000,
    "cumsum, diff": lambda a: np.diff(np.cumsum(a)),
    "sort": np.sort,
    "argsort": lambda a: np.argsort(a[:50_000], kind="stable"),
    "partition": lambda a: np.sort(np.partition(a, 500)[:500]),
    "unique": np.unique,
    "searchsorted": lambda a: np.searchsorted(np.sort(a), a[:1000]),
    "histogram": lambda a: np.histogram(a, bins=50)[0],
    "bincount": lambda a: np.bincount(a),
    "percentile": lambda a: np.percentile(a, [1, 50, 99]),
    "where": lambda a: np.where(a > 9, a, -a),
    "nonzero": lambda a: np.nonzero(a == 5)[0],
    "take": lambda a: a.take(np.arange(0, COUNT, 4099)),
    "fancy index": lambda a: a[np.arange(COUNT - 1, 0, -777)],
    "mask": lambda a: a[a < 100],
    "concatenate": lambda a: np.concatenate([a, a[:7]]),
    "stack": lambda a: np.stack([a[:4096], a[-4096:]]),
    "tile, repeat": lambda a: np.repeat(np.tile(a[:1000], 3), 2),
    "roll": lambda a: np.roll(a, 12_345),
    "flip": lambda a: a[::-1].copy(),
    "transpose": lambda a: matrix(a).T.copy(),
    "matmul": lambda a: matrix(a) @ matrix(a)[::-1],
    "dot": lambda a: a.dot(a),
    "einsum": lambda a: np.einsum("ij,ji->i", matrix(a), matrix(a)),
    "linalg.solve": lambda a: np.linalg.solve(matrix(a) + np.eye(250) * 1e7, np.ones(250)),
    "fft": lambda a: np.fft.rfft(a[:65536]),
    "convolve": lambda a: np.convolve(a[:65536], [1, 2, 3]),
    "astype": lambda a: a.astype(np.float32),
    "view": lambda a: a.view(np.uint16)[::101].copy(),
    "copy": lambda a: a.copy(),
    "ravel, flat": lambda a: np.array(list(matrix(a).flat[:500])),
    "reduceat": lambda a: np.add.reduceat(a, [0, 100, 70_000]),
    "outer": lambda a: np.multiply.outer(a[:300], a[-300:]),
    "packbits": lambda a: np.packbits(a > 7),
    "nditer": lambda a: sum(int(x) for x in np.nditer(a[:5000])),
    "iteration": lambda a: [int(x) for x in a[::1000]],
    "sliding windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 5)[::999].sum(axis=1),
    "array_equal": lambda a: np.array_equal(a, plain()),
    "asarray": lambda a: np.asarray(a)[::17].copy(),
    "tolist": lambda a: a[:2000].tolist(),
    "item": lambda a: a.item(333_333),
    "str": str,
    # In place.
    "fill": changed(lambda a: a.fill(3)),
    "iadd": changed(lambda a: np.add(a, 1, out=a)),
    "imul": changed(lambda a: times(a, 3)),
    "assign a scalar": changed(lambda a: a.__setitem__(slice(9, -9, 5), 4)),
    "assign itself": changed(lambda a: a.__setitem__(slice(None), a[::-1])),
    "assign a mask": changed(masked),
    "sort in place": changed(lambda a: a.sort()),
    "byteswap": changed(lambda a: a.byteswap(inplace=True)),
    "ufunc.at": changed(lambda a: np.add.at(a, [1, 1, 400_000], 5)),
    "put": changed(lambda a: a.put([0, 70_000], [8, 9])),
    "copyto": changed(lambda a: np.copyto(a[100:200_100], a[:200_000].copy())),
    "shuffle": changed(lambda a: np.random.default_rng(1).shuffle(a[:50_000])),
    "random": changed(lambda a: np.random.default_rng(2).random(out=a.view(np.float64))),
    "clip": changed(lambda a: a.clip(10, 90, out=a)),
}


def read_into(fill):
    """Fills an array from a file, and gives it."""
    def run(array):
        with tempfile.TemporaryFile() as file:
            (plain() + 1).tofile(file)
            file.seek(0)
            fill(file, array)
        return array
    return run


def from_socket(array):
    ours, theirs = socket.socketpair()
    data = (plain() + 2).tobytes()
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
    sender.start()
    view = memoryview(array).cast("B")
    done = 0
    while done < len(view):
        done += ours.recv_into(view[done:])
    sender.join()
    ours.close()
    return array


READ = {
    "readinto": read_into(lambda file, a: file.readinto(a)),
    "readinto of a slice": read_into(lambda file, a: file.readinto(a[1000:500_000])),
    "os.preadv": read_into(lambda file, a: os.preadv(file.fileno(), [a[:99], a[70_000:]], 8)),
    "socket.recv_into": from_socket,
    "BytesIO.readinto": changed(lambda a: io.BytesIO(bytes(range(256)) * 9000).readinto(a)),
    "memoryview assignment": changed(
        lambda a: memoryview(a).cast("B").__setitem__(slice(3, 99_003), b"x" * 99_000)),
}


class Operations(unittest.TestCase):
    def compare(self, operations):
        for name, operation in operations.items():
            with self.subTest(name):
                array = folded()
                before = array.stats()
                self.assertLessEqual(before["resident_bytes"], LIMIT)
                expected, found = operation(plain()), operation(array)
                if isinstance(expected, (bytes, bytearray)):
                    # NumPy would compare them without the zeros at their ends.
                    self.assertEqual(found, expected)
                else:
                    np.testing.assert_array_equal(found, expected)
                    self.assertNotIsInstance(found, bytes)

    def test_what_passes_an_array_to_the_system(self):
        self.compare(SYSTEM)

    def test_what_reads_into_an_array(self):
        self.compare(READ)

    def test_what_computes(self):
        self.compare(COMPUTED)

    def test_types(self):
        for dtype in ["u1", "<f4", "c16", "M8[s]", "U16", "V3", [("x", "i4"), ("y", "f8", 3)]]:
            with self.subTest(str(dtype)):
                raw = np.arange(3 << 19, dtype=np.uint32).view(np.uint8)
                dtype = np.dtype(dtype)
                if dtype.kind == "U":
                    expected = np.array([f"name{n}.x" for n in range(50_000)], dtype=dtype)
                else:
                    whole = raw.size // dtype.itemsize * dtype.itemsize
                    expected = raw[:whole].view(dtype)
                array = ramfold.array(expected, limit=LIMIT)
                array.page_out()
                self.assertEqual(array.tobytes(), expected.tobytes())
                array.page_out()
                self.assertEqual(in_file(array.tofile), expected.tobytes())


if __name__ == "__main__":
    unittest.main()
