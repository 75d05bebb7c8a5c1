"""Products with tiles and features on a cluster of two processes."""

import os
import signal
import threading
import time

import dask.array as da
import numpy as np
import pytest
import zarr

from mkmc_prob import PPCA, ClusterError, MKMCError, fit, kernels, stack_kernels
from mkmc_prob.linalg import tiles

distributed = pytest.importorskip("distributed")
FEW = {"structure": PPCA(6), "tol": 0}


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    rng = np.random.default_rng(0)
    common = rng.standard_normal((600, 4))
    tables = [common @ rng.standard_normal((4, 30)) for _ in range(2)]
    one, two = (table + rng.standard_normal((600, 30)) for table in tables)
    two[:90] = np.nan
    array = zarr.create_array(
        str(tmp_path_factory.mktemp("cluster") / "one.zarr"),
        shape=(600, 600),
        chunks=(300, 300),
        dtype="f4",
    )
    array[:] = one @ one.T / 30
    features = kernels.Features(da.from_array(two, chunks=(200, 30)))
    return stack_kernels({"one": array, "two": features})


def test_a_cluster_gives_the_same_result(stack, cluster):
    here = fit(stack, max_iter=4, **FEW)
    there = fit(stack, max_iter=4, client=cluster, **FEW)
    level = here.penalized_log_likelihood
    np.testing.assert_allclose(there.penalized_log_likelihood, level, rtol=1e-12)
    np.testing.assert_allclose(there.model.matrix, here.model.matrix, rtol=1e-9, atol=1e-12)
    with cluster.as_current():
        rows = there.rows("two", [0, 300])
    np.testing.assert_allclose(rows, here.rows("two", [0, 300]), rtol=1e-9, atol=1e-12)


def test_a_killed_worker_is_survived(stack, cluster):
    here = fit(stack, max_iter=12, **FEW)
    killed = []

    def kill():
        time.sleep(0.5)
        killed.append(next(iter(cluster.run(os.getpid).values())))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    there = fit(stack, max_iter=12, client=cluster, **FEW)
    killer.join()
    level = here.penalized_log_likelihood
    np.testing.assert_allclose(there.penalized_log_likelihood, level, rtol=1e-12)
    np.testing.assert_allclose(there.model.matrix, here.model.matrix, rtol=1e-9, atol=1e-12)
    assert killed[0] not in cluster.run(os.getpid).values()


def test_the_last_iterate_of_a_lost_cluster_is_kept(stack, monkeypatch):
    """As if the scheduler did not answer from the fourth E-step on."""
    calls, compute = [], tiles.compute

    def lost(tasks):
        calls.append(len(tasks))
        if len(calls) > 60:
            raise ClusterError("the cluster does not answer")
        return compute(tasks)

    monkeypatch.setattr(tiles, "compute", lost)
    with pytest.raises(ClusterError) as caught:
        fit(stack, max_iter=100, **FEW)
    monkeypatch.undo()
    reached = caught.value.model
    first = fit(stack, max_iter=1, **FEW)
    on = fit(stack, max_iter=1, initial=reached, **FEW)
    assert on.penalized_log_likelihood > first.penalized_log_likelihood


def test_a_closed_cluster_is_an_error_that_says_so(stack):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=False
    ) as gone:
        client = distributed.Client(gone, set_as_default=False)
    with pytest.raises(ClusterError, match=r"the cluster does not answer .*initial=error\.model"):
        fit(stack, max_iter=2, client=client, **FEW)
    client.close()


def test_what_is_no_client_is_named(stack):
    with pytest.raises(MKMCError, match=r"client: str found; pass dask\.distributed\.Client"):
        fit(stack, client="tcp://127.0.0.1:8786", **FEW)
