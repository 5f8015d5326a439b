import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.lessons.p2p_topology import flows, pictures
from course.lessons.p2p_topology.experiment import RECORDING
from course.lessons.p2p_topology.topology import PRESETS, PUZZLE, Topology
from labkit.measure import records
from labkit.show import alt_text


@pytest.fixture(scope="module")
def recording():
    return records.load(RECORDING, recorded=True)


def drawn(figure_or_axes, tmp_path):
    return alt_text.save(figure_or_axes, tmp_path / "picture.png").stat().st_size > 5000


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_drawn(name, tmp_path):
    ax = pictures.graph(PRESETS[name])
    assert isinstance(ax, Axes)
    assert drawn(ax, tmp_path)
    assert "8 GPUs" in alt_text.text_of(ax)


def test_link_classes_are_not_told_by_colour_alone():
    lines = pictures.graph(PUZZLE).get_legend().get_lines()
    looks = {(str(line.get_linestyle()), line.get_linewidth()) for line in lines}
    assert len(looks) == len(lines) == 3


def test_paths_are_in_the_alternative(tmp_path):
    ax = pictures.graph(PUZZLE, paths=flows.maximum_flow(PUZZLE, 0, 2, nvlink_only=True))
    assert "0 -> 5 -> 2 at 46.6 GB/s" in alt_text.text_of(ax)
    assert len(alt_text.tables_of(ax)[0].rows) == 6
    assert drawn(ax, tmp_path)


def test_the_matrix_has_its_figures(tmp_path):
    ax = pictures.bandwidth_matrix(PUZZLE.bandwidths())
    assert "12.4 to 1" in alt_text.text_of(ax)
    assert drawn(ax, tmp_path)


@pytest.mark.parametrize("name", PRESETS)
def test_the_playground_takes_every_choice(name, tmp_path):
    for src, dst in [(0, 2), (3, 3)] if name == next(iter(PRESETS)) else [(7, 0)]:
        figure = pictures.transfer(PRESETS[name], src, dst, 400_000_000)
        assert isinstance(figure, Figure)
        assert drawn(figure, tmp_path)


def test_the_playground_draws_two_gpus():
    pair = Topology.parse("GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X")
    figure = pictures.transfer(pair, 0, 1, 1_000_000)
    assert "direct (NV2)" in alt_text.text_of(figure)


def test_what_the_command_saves(recording, tmp_path):
    assert drawn(pictures.draw(recording), tmp_path)


def test_measured_matrices_of_gpus(tmp_path):
    direct, staged = [[1.5e12, 46e9], [46e9, 1.5e12]], [[2e11, 10e9], [10e9, 2e11]]
    assert drawn(pictures.gpu_matrices(direct, staged), tmp_path)


def test_the_chunk_curve_names_its_lowest_point(recording):
    sweep = [record for record in recording if record.case.startswith("via 5, ")]
    ax = pictures.chunk_curve(sweep)
    assert "lowest at" in alt_text.text_of(ax)


def test_transfers_that_start_together_and_the_scale(tmp_path):
    ax = pictures.together({"0 -> 1": 4.3, "0 -> 2": 53.3})
    assert "53.3 ms" in alt_text.text_of(ax)
    for algorithm in ("ring", "tree"):
        assert drawn(pictures.at_scale(2**28, algorithm=algorithm), tmp_path)
