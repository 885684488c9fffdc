"""Random rows: the same for the same seed, each once, in the order of the data."""

import pytest

from hc_lens.data.sampling import some_rows


def test_some_rows_are_ascending_distinct_and_drawn_by_the_seed() -> None:
    rows = some_rows(1000, 20, seed=3)
    assert len(set(rows)) == 20
    assert rows == sorted(rows)
    assert rows != list(range(20))
    assert rows == some_rows(1000, 20, seed=3)
    assert rows != some_rows(1000, 20, seed=4)
    assert set(rows) < set(some_rows(1000, 40, seed=3)), "more rows of one seed hold the fewer"


@pytest.mark.parametrize("max_rows", [None, 5, 9])
def test_without_a_limit_below_their_number_all_rows_stay(max_rows: int | None) -> None:
    assert some_rows(5, max_rows, seed=0) == [0, 1, 2, 3, 4]


def test_a_limit_below_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        some_rows(5, 0, seed=0)
