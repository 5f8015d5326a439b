"""What a machine with several GPUs would run, run in a played box: rehearsed, not run on GPUs."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from course import catalogue
from course.catalogue import ROOT
from tests.ranks.nodes import free_port
from tests.rehearsal import boxed
from tests.rehearsal.boxed import of_ranks

pytestmark = pytest.mark.slow
by_night = pytest.mark.exhaustive
GPUS = [3, *(pytest.param(n, marks=by_night) for n in (1, 2, 4, 6, 8))]


LESSONS = sorted(ROOT.glob("notebooks/0*.ipynb"))


PAGE = """
import os, sys
from dataclasses import replace
import torch.distributed as dist
from course.__main__ import main
from course.place import launch
from course.gpu_row import Sizes
from labkit import device
def program():
    return str(device()), dist.get_backend()
print(set(launch(program, world_size=2)), open(os.environ["BOX_LOG"]).read().split())
fitting = Sizes.on_gpus
Sizes.on_gpus = lambda *given: replace(fitting(*given), rounds=1, calls=5)
sys.exit(main(["gpus", "--out", sys.argv[1]]))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gpus", GPUS)
def test_a_lessons_launch_stays_on_the_cpu_and_every_row_of_your_gpus_fits_into_what_is_free(
    gpus, tmp_path, box
):
    page, log = tmp_path / "page.html", tmp_path / "log"
    done = box.run(gpus, PAGE, page, LOG=log, MEMORY=8e9, FILLED=7.97e9, timeout=250)
    assert done.returncode == 0, done.output
    by_gloo_and_no_cuda = "{('cpu', 'gloo')} ['asks', 'gloo', 'asks', 'gloo']\n"
    assert done.stdout.startswith(by_gloo_and_no_cuda), done.stdout
    assert f"found: {gpus} x played GPU" in done.stderr and "failed" not in done.stdout
    if gpus == 1:
        assert "From NCCL 2.30 on ranks can share a GPU" in done.stderr
        return
    assert "each rank may fill 22.9 MiB, 80% of what is free on its GPU" in done.stderr
    assert "7,601 MiB are filled already" in done.stderr
    assert "MEASURED" in done.stdout and "Nobody" not in done.stdout
    assert ("It takes 3 ranks." in done.stdout) == (gpus == 2)
    records = json.loads(page.with_suffix(".json").read_text())["records"]
    assert {record["provenance"]["backend"] for record in records} == {"nccl"}
    pairs = [record for record in records if re.fullmatch(r"\d to \d", record["case"])]
    assert len(pairs) == gpus * (gpus - 1)


FAILS = """
import torch, torch.distributed as dist
from labkit import device, launch
def bad():
    dist.all_reduce(torch.ones(1, device=device()))
    if dist.get_rank() == 1:
        raise KeyError("the real reason")
    dist.all_reduce(torch.ones(1, device=device()))
launch(bad, world_size=2, timeout=20)
"""


def test_under_torchrun_a_rank_that_fails_says_so_before_its_group_is_gone(box):
    done = box.run(2, FAILS, ranks=2, WAIT=8)
    assert any(done.statuses) and "KeyError: 'the real reason'" in done.output, done.output[-3000:]
    assert "labkit: on rank 1 of 2:" in done.output and "rank 0 of 2 was late" not in done.output


SLURM = """
import torch.distributed as dist
from labkit import launch
print(set(launch(lambda: dist.get_backend_config())))
"""


@pytest.mark.parametrize("gpus, says", [(2, "cuda:nccl"), (1, "gloo, on the CPU")])
def test_variables_without_local_world_size_take_each_hosts_gpus(gpus, says, box):
    """As a script of Slurm's sets them: which ranks share a host the ranks tell each other."""
    left_out = ("LOCAL_WORLD_SIZE", "GROUP_RANK")
    ranks = [{k: v for k, v in rank.items() if k not in left_out} for rank in of_ranks(2)]
    done = box.run(gpus, SLURM, ranks=ranks)
    assert done.returncode == 0 and says in done.output, done.output


CARRIED_BY = {
    "passport": {"nccl"},
    "gloo-scaling": {"nccl"},
    "pipeline-p2p": {"gloo"},
    "equivalent-collectives": {"nccl"},
}
"""By experiment: what its records say of a job's ranks that have both."""


@by_night
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", catalogue.experiments())
def test_each_experiment_runs_on_a_jobs_ranks_beside_gpus(name, tmp_path, box):
    file = tmp_path / "records.json"
    command = ["-m", "course", "run", name, "--quick", "--out", file]
    done = box.run(3, *command, ranks=3, timeout=500)
    assert done.returncode == 0, done.output[-3000:]
    if "Nothing was measured here" in done.stdout:
        assert "needs shaped links of its own: nothing is run under torchrun" in done.stderr
        assert done.stdout.count("no file is written") == 1 and not file.exists()
        return
    records = json.loads(file.read_text())["records"]
    carriers = {record["provenance"]["backend"] for record in records}
    assert carriers == CARRIED_BY.get(name, carriers)


SMALLER = {
    "02_gradient_all_reduce": "vgg11, width=1, classes=1000=>vgg11, width=1/16, classes=1000",
    "04_p2p_topology": "400_000_000=>4_000_000",
    "05_pipeline_p2p": "2**24)=>2**16)",
    "06_equivalent_collectives": "2**28=>2**18",
    "07_eighty_gpus": "2**30, gpus=>2**20, gpus",
}
"""By lesson: what it moves between GPUs, and what is moved here instead."""


@by_night
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_all_cells_of_a_lesson_run_and_cuda_starts_only_in_those_for_gpus(
    path, gpus, tmp_path, box
):
    """The notebook's own process starts it, too: records name the GPUs."""
    log, smaller = tmp_path / "log", [SMALLER[path.stem]] if path.stem in SMALLER else []
    done = box.run(gpus, CELLS, path, *smaller, LOG=log, timeout=500)
    assert done.returncode == 0, done.output[-3000:]
    lines = [line.split()[:2] for line in log.read_text().splitlines()] if log.exists() else []
    on_gpus = sum(line == ["asks", "nccl"] for line in lines)
    assert sum(line[0] == "cuda" for line in lines) <= on_gpus + 1, "it has a rank that needs none"
    assert all(line[1] in ("gloo", "nccl") for line in lines if line[0] == "asks")


CELLS = ROOT / "tests/rehearsal/cells.py"
LESSON_06 = ["imports", "posted", "posted-run", "repair", "on-gpus"]


def test_lesson_06_takes_a_smaller_sum_where_a_gpu_has_no_room(box):
    notebook = ROOT / "notebooks/06_equivalent_collectives.ipynb"
    done = box.run(2, CELLS, notebook, *LESSON_06, MEMORY=5e6)
    assert done.returncode == 0 and "S is 0.000745 GiB here" in done.stdout, done.output[-3000:]
    assert "the long repair fills 5 times that" in done.stdout


ON_ALL = ["imports", "machine", "here", "clock", "order", "late", "posted"]


@by_night
def test_the_cells_of_the_gpus_notebook_run_on_two_gpus_as_far_as_kernels_are_not_asked_for(box):
    done = box.run(2, CELLS, ROOT / "notebooks/gpus.ipynb", *ON_ALL, timeout=250)
    assert done.returncode == 0 and done.stdout.count("It failed:") == 1, done.output[-3000:]
    assert "held: all but the third of lesson 06 end" in done.stdout and "6 ended" in done.stdout


CHECKUP = ROOT / "examples/checkup.py"


@by_night
@pytest.mark.parametrize("ranks", [(), 3], ids=["alone", "under torchrun"])
def test_the_checkup_times_what_carries_the_gradients(ranks, box):
    done = box.run(4, CHECKUP, ranks=ranks, timeout=100)
    assert done.returncode == 0 and "by nccl" in done.stdout.lower(), done.output[-3000:]


SRUN = """#!/bin/bash
shift  # --kill-on-bad-exit
for task in 0 1 2 3; do
    SLURM_PROCID=$task SLURM_NTASKS=4 SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$((task / 2)) \\
        BOX_HOST=node-$((task / 2)) "$@" &
done
for task in 0 1 2 3; do wait -n || exit; done
"""


@by_night
def test_the_slurm_script_of_the_page_gives_each_task_its_nodes_gpus(tmp_path):
    """Slurm is played: two nodes of two tasks each, on this machine."""
    text = (ROOT / "docs/cluster.md").read_text()
    script = re.search(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)[1]
    assert "srun --kill-on-bad-exit" in script
    for name, source in {"srun": SRUN, "scontrol": "#!/bin/bash\necho 127.0.0.1\n"}.items():
        (tmp_path / name).write_text(source)
        (tmp_path / name).chmod(0o755)
    given = boxed.variables(2) | {"SLURM_JOB_NODELIST": "node-[0-1]"}
    given["PATH"] = f"{tmp_path}:{given['PATH']}"
    script = script.replace("29500", str(free_port()))
    options = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 100}
    done = subprocess.run(["bash", "-c", script], env=given, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    records = json.loads((tmp_path / "records.json").read_text())["records"]
    assert {record["params"]["hosts"] for record in records} == {2}
    assert all("nccl" in record["provenance"]["backend"] for record in records)


def test_a_box_is_for_tests_alone():
    sources = [*ROOT.glob("labkit/**/*.py"), *ROOT.glob("course/**/*.py")]
    assert not [path for path in sources if "BOX_" in Path(path).read_text()]
