"""Eigenvalues and eigenvectors of symmetric matrices."""

import numpy as np
import pytest

from vastgp.linalg import eigen
from vastgp.linalg.eigen import symmetric_eigen
from vastgp.linalg.threads import _blas


def test_they_rebuild_the_matrix_and_few_rows_are_the_work_of_one_thread(monkeypatch):
    A = np.random.default_rng(0).normal(size=(70, 40))
    matrix = A.T @ A
    seen, found = [], eigen.eigh

    def watched(*given, **more):
        seen.extend(each.get_num_threads() for each in _blas().lib_controllers)
        return found(*given, **more)

    monkeypatch.setattr(eigen, "eigh", watched)
    with _blas().limit(limits=2, user_api="blas"):
        values, vectors = symmetric_eigen(np.tril(matrix))
        assert {each.get_num_threads() for each in _blas().lib_controllers} == {2}
    assert set(seen) == {1}
    assert np.all(np.diff(values) >= 0.0)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(40), atol=1e-12)


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="infs or NaNs"):
        symmetric_eigen(np.full((3, 3), np.nan))
