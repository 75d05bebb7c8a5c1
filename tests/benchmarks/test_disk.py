"""Kernels on disk.

Kernels of 20,000 objects in a zarr store of float32 numbers, in chunks of 2,000 (6.4 GB), all
objects visible, in a fit of 50 factors. *Check*: `stack_kernels`, which reads everything once, both
triangles. *Products*: what an evaluation needs of the kernels, with each chunk of the upper
triangle read once; *plain*: the dask product `Q @ B` with the same kernels, which reads both
triangles, in turns with it. *Evaluation*: an E-step with everything that the loop needs of it. The
peak is that of the process, interpreter and libraries included. The store was just written, so
part of it is in the operating system's cache, for both alike. The fit stops when a nat is still to
come. (That completed rows agree with dense formulas is a test with 600 objects,
`tests/fitting/test_lazy_fits.py`.)
"""

import threading
import time

import dask.array as da
import numpy as np
import psutil
import zarr

from mkmc_prob import EM, PPCA, Sources, WishartPrior, fit, stack_kernels


class Peak:
    """The largest resident memory of this process in the block, in GB."""

    def __enter__(self):
        self.value, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._ended.wait(0.02):
            self.value = max(self.value, psutil.Process().memory_info().rss / 1e9)

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def written(folder, size, kernels, chunk):
    """Write kernels of ten common factors and noise; return zarr arrays by name."""
    rng = np.random.default_rng(0)
    common, found = rng.standard_normal((size, 10)), {}
    for k in range(kernels):
        features = common @ rng.standard_normal((10, 200)) + rng.standard_normal((size, 200))
        features = features.astype(np.float32)
        array = zarr.create_array(
            str(folder / f"{k}.zarr"), shape=(size, size), chunks=(chunk, chunk), dtype="f4"
        )
        for i in range(0, size, chunk):
            for j in range(0, size, chunk):
                block = features[i : i + chunk] @ features[j : j + chunk].T
                array[i : i + chunk, j : j + chunk] = block / 200.0
        found[f"k{k}"] = array
    return found


def test_disk(full, benchmark, report, tmp_path):
    size, chunk, rank = (20_000, 2_000, 50) if full else (300, 100, 3)
    arrays = written(tmp_path, size, 4, chunk)
    columns = np.random.default_rng(1).standard_normal((size, rank))

    def row(what, seconds, peak, note=""):
        cells = {"what": what, "seconds": f"{seconds:.1f}"}
        cells["peak, GB"] = f"{peak:.2f}" if peak else ""
        report(cells | {"note": note})

    def timed(call):
        with Peak() as peak:
            start = time.perf_counter()
            result = call()
            seconds = time.perf_counter() - start
        return result, seconds, peak.value

    def plain():
        for array in arrays.values():
            whole = da.from_array(array, chunks=(chunk, chunk))
            (whole @ da.from_array(columns, chunks=(chunk, rank))).compute()

    def once():
        stack, *taken = timed(lambda: stack_kernels(arrays))
        row("check", *taken)
        em = EM(stack, WishartPrior(1.0), sources=Sources.estimated(stack), structure=PPCA(rank))
        own, rivals, memory = [], [], 0.0
        with em.threads():
            for _ in range(3 if full else 1):
                _, seconds, peak = timed(
                    lambda: [part.kernel.moment @ columns for part in em.source_kernels]
                )
                own.append(seconds)
                memory = max(memory, peak)
                rivals.append(timed(plain)[1])
        ratio = float(np.median(np.array(own) / np.array(rivals)))
        row("products", float(np.median(own)), memory, f"{ratio:.2f} of plain, aim 0.7")
        row("plain", float(np.median(rivals)), 0.0)
        model = em.initial_model()
        with em.threads():
            row("evaluation", *timed(lambda: em.e_step(model))[1:])
        tol = 1.0 if full else 1e-3
        result, *taken = timed(lambda: fit(stack, structure=PPCA(rank), tol=tol))
        count, ended = int(result.trace["evaluations"][-1]), result.converged
        note = f"{count} evaluations, {'converged' if ended else 'not converged'}"
        row("fit", *taken, note)
        few = np.arange(0, size, size // 100)
        (rows, *taken) = timed(lambda: result.rows("k0", few[:2].tolist()))
        np.testing.assert_allclose(rows.values[:, few], arrays["k0"][:][few[:2]][:, few], rtol=1e-6)
        row("two rows of completed", *taken)

    benchmark.pedantic(once, rounds=1)
