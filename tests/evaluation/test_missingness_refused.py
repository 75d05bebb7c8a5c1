"""Artificial missingness: every protocol or option that is refused, and what the error says."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mkmc_prob import stack_kernels
from mkmc_prob.errors import KernelError, LabelError, MKMCError
from mkmc_prob.evaluation.missingness import remove_objects

GOOD = {"classes": {0: "a", 1: "a", 2: "b"}, "odds": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        (
            {"protocol": "pair"},
            KernelError,
            "protocol: 'pair' found; 'pairs'.* 'objects'.* 'rounds'",
        ),
        ({"protocol": ["pairs"]}, KernelError, r"protocol: \['pairs'\]"),
        ({"of": "cells"}, KernelError, "of: 'cells' .* 'rows' or 'entries'"),
        ({"protocol": "blocks"}, MKMCError, "batches: protocol 'blocks' needs it"),
        (
            {"protocol": "classes", "odds": {}},
            MKMCError,
            "classes: protocol 'classes' needs it. Pass classes and odds",
        ),
        ({"protocol": "classes", "classes": {}}, MKMCError, "odds: protocol 'classes' needs it"),
        ({"batches": 2}, MKMCError, "batches: protocol 'pairs' .* protocol='blocks'"),
        ({**GOOD}, MKMCError, "classes: protocol 'pairs' does not use it"),
        ({"protocol": "blocks", "batches": 0}, KernelError, "batches: 0 found; .* >= 1"),
        ({"protocol": "blocks", "batches": 1.5}, KernelError, r"batches: 1\.5 found"),
        ({"protocol": "blocks", "batches": True}, LabelError, "batches: bool found"),
        ({"protocol": "blocks", "batches": [0, 0, 1]}, LabelError, "batches: list found"),
        ({"protocol": "blocks", "batches": {0: 1, 2: 1}}, LabelError, "batches: none for object 1"),
        ({"protocol": "blocks", "batches": {0: 1, 1: None, 2: 1}}, LabelError, "None for object 1"),
        ({"protocol": "blocks", "batches": {0: 1, 1: 1, 2: []}}, LabelError, r"\[\] for object 2"),
        (
            {"protocol": "blocks", "batches": pd.Series([1, 2, 3, 4], index=[0, 1, 2, 1])},
            LabelError,
            "batches, objects: label 1 occurs more than once",
        ),
        (
            {"protocol": "blocks", "batches": xr.DataArray([1, 1, 2], dims="object")},
            LabelError,
            "batches: DataArray without labels",
        ),
        (
            {"protocol": "classes", **GOOD, "classes": {"0": "a", "1": "a", "2": "b"}},
            LabelError,
            "classes: none for object 0, 1, 2",
        ),
        (
            {"protocol": "classes", **GOOD, "classes": {0: "a", 1: np.nan, 2: "b"}},
            LabelError,
            "classes: nan for object 1",
        ),
        (
            {"protocol": "classes", **GOOD, "classes": list("aab")},
            LabelError,
            "classes: list without labels",
        ),
        (
            {"protocol": "classes", **GOOD, "odds": {"a": 1}},
            LabelError,
            "odds: none for class 'b', the class of object 2",
        ),
        (
            {"protocol": "classes", **GOOD, "odds": {"a": 1, "b": 1, "c": 1}},
            LabelError,
            "odds: no object is of class 'c'; there are 'a', 'b'",
        ),
        ({"protocol": "classes", **GOOD, "odds": [1, 2]}, MKMCError, r"odds: \[1, 2\] found"),
        *[
            (
                {"protocol": "classes", **GOOD, "odds": {"a": 1, "b": weight}},
                KernelError,
                f"odds of class 'b': {weight!r} found; a finite number > 0",
            )
            for weight in (0, -1, np.nan, np.inf, "2", True)
        ],
    ],
)
def test_refused(more, kind, message):
    with pytest.raises(kind, match=message) as caught:
        remove_objects(stack_kernels(np.ones((2, 3, 3))), 0.5, seed=0, **more)
    assert type(caught.value) is kind
