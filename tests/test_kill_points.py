"""Lines killed at random moments end with the bits of a line that was left alone; `tests.kill_points.main` kills more."""

from pathlib import Path

import pytest

from tests.kill_points import LINES, kill_points


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_a_killed_line_ends_as_one_that_was_left_alone(name: str, tmp_path: Path) -> None:
    found = kill_points(name, 3, tmp_path)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.kills > 0
