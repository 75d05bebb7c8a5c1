"""The made-up fusion problem: its form, and what its description promises, seen from outside."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC

from mkmc_prob import EM, WishartPrior, fit, mean_impute, relative_error, remove_objects
from mkmc_prob.datasets import make_fusion_problem
from mkmc_prob.errors import MKMCError


@pytest.fixture(scope="module")
def problem():
    return make_fusion_problem(400, seed=3)


def test_it_is_labelled(problem):
    kernels, classes = problem
    assert kernels.dims == ("kernel", "object", "object_bis")
    names = ["rbf_1", "linear_2", "graph_3", "rbf_4", "linear_5", "graph_6", "rbf_7"]
    assert kernels["kernel"].values.tolist() == names
    objects = [f"object_{i:03d}" for i in range(400)]
    assert kernels["object"].values.tolist() == objects
    assert kernels["object_bis"].values.tolist() == objects
    assert classes.dims == ("object",)
    assert classes["object"].values.tolist() == objects
    assert classes.dtype.kind == "i"
    assert classes.name == "class"


def test_the_default_sizes_are_the_papers():
    kernels, classes = make_fusion_problem(n_kernels=1)
    assert kernels.shape == (1, 2318, 2318)
    assert np.unique(classes.values, return_counts=True)[1].tolist() == [2318 - 497, 497]
    check_matrices(kernels.values)
    assert kernels["object"].values[[0, -1]].tolist() == ["object_0000", "object_2317"]


def check_matrices(kernels):
    assert (np.diagonal(kernels, axis1=1, axis2=2) == 1).all()
    assert (kernels == kernels.transpose(0, 2, 1)).all()
    size = kernels.shape[1]
    assert np.linalg.eigvalsh(kernels).min() >= -size * 2.2e-16 * np.linalg.norm(kernels[0])


@settings(max_examples=40)
@given(
    st.integers(4, 60),
    st.integers(1, 9),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.integers(0, 2**32 - 1),
)
def test_any_size(size, count, share, seed):
    kernels, classes = make_fusion_problem(size, count, positive_share=share, seed=seed)
    assert kernels.shape == (count, size, size)
    assert kernels["object"].values.tolist() == sorted(kernels["object"].values.tolist())
    check_matrices(kernels.values)
    assert set(classes.values.tolist()) == {-1, 1}
    positive = (classes.values == 1).sum()
    assert abs(positive - share * size) <= 0.5 or positive in (1, size - 1)
    EM(kernels, WishartPrior(0.1))  # the package takes them for covariances


def test_the_ranks_are_as_described(problem):
    spectra = np.linalg.eigvalsh(problem.kernels.values)
    ranks = (spectra > 400 * 2.2e-16 * spectra[:, -1:]).sum(axis=1)
    # Centered before they were normalized: one less than the number of objects.
    assert ranks.tolist() == [399, 20, 399, 399, 50, 399, 399]
    few = make_fusion_problem(15, 2).kernels.sel(kernel="linear_2").values
    assert np.linalg.matrix_rank(few, hermitian=True) == 14


def test_the_sources_say_less_and_less_about_the_class(problem):
    truth = problem.classes.values
    target = np.outer(truth - truth.mean(), truth - truth.mean())
    scores, alignments = {}, {}
    for name, kernel in zip(problem.kernels["kernel"].values, problem.kernels.values, strict=True):
        machine = SVC(kernel="precomputed")
        decided = cross_val_predict(machine, kernel, truth, cv=5, method="decision_function")
        scores[name] = roc_auc_score(truth, decided)
        alignments[name] = (kernel * target).sum() / np.linalg.norm(kernel)
    assert min(scores["rbf_1"], scores["linear_2"]) > 0.85
    assert 0.55 < scores["linear_5"] < scores["linear_2"]
    assert scores["rbf_4"] < scores["rbf_1"]
    # Four standard errors of the score of a coin, with 86 positives and 314 negatives.
    assert abs(scores["rbf_7"] - 0.5) < 4 * 0.035
    assert alignments["rbf_1"] > alignments["rbf_4"] > alignments["rbf_7"]
    assert alignments["linear_2"] > alignments["linear_5"]


def test_a_single_source_is_informative():
    kernels, classes = make_fusion_problem(200, 1, positive_share=0.5)
    decided = cross_val_predict(
        SVC(kernel="precomputed"), kernels.values[0], classes.values, method="decision_function"
    )
    assert roc_auc_score(classes.values, decided) > 0.85


def test_the_sources_share_structure(problem):
    # Beyond the class: within the objects of one class the kernels still resemble each other.
    negative = problem.kernels.values[:, problem.classes.values == -1][
        :, :, problem.classes.values == -1
    ]
    pairs = negative[:, *np.triu_indices(negative.shape[1], 1)]
    alike = np.corrcoef(pairs)
    assert alike.min() > 0.3
    assert alike[np.triu_indices(7, 1)].max() < 0.95


def test_kernels_help_each_other():
    complete, _ = make_fusion_problem(100, 4)
    incomplete = remove_objects(complete, 0.3, seed=0)
    result = fit(incomplete, tol=0.1, method="geodesic")
    ours = relative_error(complete, result.completed, incomplete)
    assert ours.mean() < 0.8 * relative_error(complete, mean_impute(incomplete), incomplete).mean()


def global_state():
    _, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    return [*keys.tolist(), position]


def test_the_seed_alone_decides():
    before = global_state()
    one, again = make_fusion_problem(30, 4, seed=7), make_fusion_problem(30, 4, seed=7)
    assert global_state() == before
    assert one.kernels.identical(again.kernels)
    assert one.classes.identical(again.classes)
    assert one.kernels.identical(make_fusion_problem(30, 4, seed=np.random.default_rng(7)).kernels)
    other = make_fusion_problem(30, 4, seed=8)
    assert not one.classes.equals(other.classes)
    # More kernels are another problem about the same objects.
    more = make_fusion_problem(30, 5, seed=7)
    assert one.classes.identical(more.classes)
    assert not np.allclose(one.kernels.values[1], more.kernels.values[1])


def test_a_generator_is_advanced():
    rng = np.random.default_rng(0)
    one, two = (make_fusion_problem(30, 1, seed=rng).kernels.values for _ in range(2))
    assert not np.allclose(one, two)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_objects": 3}, "n_objects: 3 found; a whole number >= 4"),
        ({"n_objects": 10.0}, "n_objects: 10.0 found"),
        ({"n_objects": True}, "n_objects: True found"),
        ({"n_kernels": 0}, "n_kernels: 0 found; a whole number >= 1"),
        ({"n_kernels": "7"}, "n_kernels: '7' found"),
        ({"positive_share": 0}, "positive_share: 0 found; a number between 0 and 1"),
        ({"positive_share": 1.0}, "positive_share: 1.0 found"),
        ({"positive_share": float("nan")}, "positive_share: nan found"),
        ({"positive_share": "half"}, "positive_share: 'half' found"),
        ({"seed": None}, "seed: None found"),
        ({"seed": -1}, "seed: -1 found"),
    ],
)
def test_arguments_are_checked(wrong, message):
    with pytest.raises(MKMCError, match=message):
        make_fusion_problem(**{"n_objects": 10, **wrong})
