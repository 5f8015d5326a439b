"""The server that starts ranks: when it is lost, and when it starts each rank afresh."""

import importlib
import os
import re
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from labkit import LaunchError, RankDied, launch
from labkit.ranks import server
from tests.marks import is_closed_to_others
from tests.ranks import leftovers
from tests.ranks.nodes import python, started

pytestmark = pytest.mark.slow


def test_a_server_that_dies_during_a_launch_is_an_error_takes_its_ranks_along_and_is_replaced():
    lost = server.shared()
    ranks = []

    def kill():
        ranks.extend(leftovers.children_of(lost.pid))
        os.kill(lost.pid, signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    with pytest.raises(LaunchError, match=r"the fork server ended \(status -9\)"):
        launch(time.sleep, 30, world_size=2)
    assert len(ranks) == 2 and leftovers.after(ranks, os.getpid()) == []
    assert launch(int, world_size=1) == [0] and server.shared().pid != lost.pid


def test_a_server_that_cannot_start_says_why(monkeypatch, tmp_path):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.syspath_prepend(tmp_path)
    server.discard()
    with pytest.raises(LaunchError, match=r"ended \(status 1\)[\s\S]*broken on purpose"):
        launch(int, world_size=1)


FEW_PROCESSES = """
import os, resource
from labkit import LaunchError, launch
launch(int, world_size=1)
if os.getuid() == 0:  # whom no limit holds
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NPROC, (MOST, MOST))
from labkit.ranks import server
server.discard()
try:
    launch(int, world_size=8)
except (LaunchError, RuntimeError, OSError) as error:
    print(error, *getattr(error, "__notes__", []))
"""


def test_where_no_further_process_can_be_made_the_limit_is_named():
    if os.getuid() == 0 and is_closed_to_others():
        pytest.skip("whom a limit holds may not start this Python")
    for limit in ("3", "12"):
        done = python("-c", FEW_PROCESSES.replace("MOST", limit), cwd="/")
        assert "ulimit -u" in done.stdout, (limit, done.stdout, done.stderr)


def test_a_second_interrupt_ends_the_server_with_its_ranks(monkeypatch):
    first = server.shared()
    with monkeypatch.context() as patch:
        patch.setattr(server.Server, "end_launch", mock.Mock(side_effect=KeyboardInterrupt))
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            launch(time.sleep, 30, world_size=2)
    assert not first.serves(os.environ)
    assert leftovers.directories_of(os.getpid()) == []
    assert launch(int, world_size=1) == [0]


def test_a_rank_that_dies_while_others_start_is_noticed(monkeypatch):
    start_rank = server.Server.start_rank

    def slowly(self, rank, descriptors):
        pid = start_rank(self, rank, descriptors)
        if rank == 0:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        return pid

    monkeypatch.setattr(server.Server, "start_rank", slowly)
    with pytest.raises(RankDied, match="rank 0 of 2 was killed by SIGKILL"):
        launch(lambda: dist.barrier(), world_size=2, timeout=20)


def test_a_closure_runs_on_fresh_interpreters_and_the_cwd_hides_nothing_from_them(
    capsys, monkeypatch, tmp_path
):
    (tmp_path / "labkit.py").write_text("raise ImportError('not labkit')")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "select.py").write_text("raise ImportError('not Python')")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "src"), tmp_path, *sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_START", "spawn")
    server.discard()
    offset = torch.tensor([10.0])

    def program(factor):
        print("up")
        x = offset + factor * dist.get_rank()
        dist.all_reduce(x)
        return x.item(), torch.get_num_threads()

    assert launch(program, 2, world_size=2) == [(22.0, 1)] * 2
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["[rank 0] up", "[rank 1] up"] and err == ""


def test_no_fresh_rank_outlives_a_killed_parent():
    script = """
        import time
        from labkit import launch
        from labkit.ranks import server
        start_rank = server.Server.start_rank
        def program():
            import subprocess
            print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
            time.sleep(60)
        server.Server.start_rank = lambda *a: (pid := start_rank(*a), print(pid, flush=True))[0]
        launch(program, world_size=2)
    """
    with started(script, LABKIT_START="spawn") as parent:
        pids = [int(parent.stdout.readline().split()[-1]) for _ in range(4)]
        assert all(map(leftovers.alive, pids))
        assert leftovers.directories_of(parent.pid)
        parent.kill()
    assert leftovers.after(pids, parent.pid) == []


def test_a_folder_that_cannot_be_removed_does_not_end_the_server(tmp_path, monkeypatch):
    """As where somebody else has put a file of his own behind its link."""
    (folder := tmp_path / "launch").mkdir()
    (folder / server.ON_DISK).symlink_to(tmp_path / "on-disk")
    server._remove(folder)
    assert not folder.exists(), "though there was nothing on disk"
    monkeypatch.setattr(os, "rmdir", mock.Mock(side_effect=PermissionError))
    folder.mkdir()
    server._remove(folder)


def test_windows_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(server.sys, "platform", "win32")
    with pytest.raises(LaunchError, match="Use WSL2"):
        launch(int, world_size=1)


def test_another_way_to_start_is_refused(monkeypatch):
    monkeypatch.setenv("LABKIT_START", "thread")
    with pytest.raises(ValueError, match='LABKIT_START must be "fork" or "spawn", got \'thread\''):
        launch(int, world_size=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Where the first and the last folder of a fresh server's path come to be."""
    folder = tmp_path_factory.mktemp("path")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder / "first"), *sys.path, str(folder / "last")])
        server.discard()
        yield folder


def test_what_ranks_import_of_torch_is_there_in_the_next_launch(path):
    def there_before(*names):
        found = [name in sys.modules for name in names]
        for name in names:
            importlib.import_module(name)
        return found

    names = ("torch.utils.show_pickle", "colorsys")
    assert launch(there_before, *names, world_size=1) == [[False, False]]
    assert launch(there_before, *names, world_size=2) == [[True, False]] * 2
    (path / "last").mkdir()
    (path / "last" / "came_later.py").touch()
    assert launch(there_before, "came_later", world_size=1) == [[False]]


def faults_of_100_mb():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(25_000_000).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_ranks_are_forked_from_huge_pages():
    switch = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not switch.exists() or "[never]" in switch.read_text():
        pytest.skip("no huge pages here")
    rollup = Path(f"/proc/{server.shared().pid}/smaps_rollup").read_text()
    assert int(re.search(r"AnonHugePages: +(\d+)", rollup)[1]) > 50_000  # kB
    if "[madvise]" in switch.read_text():  # what ranks allocate has small ones
        assert min(launch(faults_of_100_mb, world_size=2)) > 20_000


def of_the_library():
    from a_library import part

    return os.getpid() == part.IMPORTED_BY, part.VALUE


def test_libraries_are_imported_once_until_they_are_edited_or_others(monkeypatch, path):
    def twice():
        return [launch(of_the_library, world_size=1)[0] for _ in range(2)]

    says = "import os\nIMPORTED_BY, VALUE = os.getpid(), '{}'"
    joins = "from labkit.ranks import errors\nerrors.LIBRARIES.add(__path__[0])"
    for name in ("first", "beside"):
        (folder := path / name / "a_library").mkdir(parents=True)
        (folder / "__init__.py").write_text(joins)
        (folder / "part.py").write_text(says.format(name))
    assert twice() == [(True, "first"), (False, "first")]
    part = path / "first" / "a_library" / "part.py"
    part.write_text(says.format("edited"))
    assert twice() == [(True, "edited"), (False, "edited")]
    monkeypatch.syspath_prepend(path / "beside")
    part.touch()  # what was imported of it is forgotten
    assert twice() == [(True, "beside"), (True, "beside")]
