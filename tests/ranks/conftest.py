import pytest

from labkit import launch
from tests.ranks import leftovers


@pytest.fixture
def nothing_left():
    """Fail when a launch leaves a process, a directory or a descriptor."""
    launch(int, world_size=1)  # the fork server is up: it is meant to stay
    before = leftovers.here()
    assert before["ranks"] == []
    yield
    assert leftovers.here() == before
