"""One process of a box for all tests of a worker."""

from pytest import fixture

from tests.rehearsal.boxed import Starter


@fixture(scope="session")
def box(tmp_path_factory):
    """Return what starts scripts in a box: `box.run(gpus, script, ranks=...)`."""
    starter = Starter(tmp_path_factory.mktemp("box"))
    yield starter
    starter.close()
