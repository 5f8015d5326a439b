import pytest

from course.lessons.p2p_topology.topology import PUZZLE_TEXT
from course.lessons.p2p_topology.topology_text import (
    TopologyTextError,
    read_bandwidths,
    read_topology,
)

WITH_NICS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPXB\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tPXB\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n"
    "  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


def test_the_puzzle_is_read_as_printed():
    classes, numa = read_topology(PUZZLE_TEXT)
    assert len(classes) == 8
    assert classes[0] == ("X", "NV4", "SYS", "SYS", "NV2", "NV2", "SYS", "NV4")
    assert numa == (0, 0, 1, 1, 2, 2, 3, 3)


def test_underlines_network_cards_and_affinity_are_understood():
    assert read_topology(WITH_NICS) == ((("X", "NV12"), ("NV12", "X")), (0, 1))


def test_gpus_are_found_behind_network_cards():
    text = " NIC0 GPU0 GPU1\nNIC0 X PXB SYS\nGPU0 PXB X NV4\nGPU1 SYS NV4 X"
    assert read_topology(text) == ((("X", "NV4"), ("NV4", "X")), (None, None))


@pytest.mark.parametrize(
    "mangle",
    [
        lambda text: text.replace("\t", "    "),
        lambda text: text.replace("\t", " ").replace("\x1b", ""),
        lambda text: "$ nvidia-smi topo -m\n" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("NIC0", "mlx5_0").replace("NIC1", "mlx5_1"),
        lambda text: text.split("Legend")[0].rsplit("NIC0\t", 1)[0].replace("NIC", "mlx5_"),
    ],
    ids=["spaces", "lost escape", "prompt", "CRLF", "old names", "no rows for cards"],
)
def test_a_paste_need_not_be_exact(mangle):
    assert read_topology(mangle(WITH_NICS)) == ((("X", "NV12"), ("NV12", "X")), (0, 1))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("nothing here", 1, "no line names GPU0"),
        (" GPU0 GPU1\nGPU0 X NVX\nGPU1 NV1 X", 2, "'NVX' is not a link class"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1", 3, "1 links where the header has 2"),
        (" GPU0 GPU1\nGPU0 X NV1", 2, "row of GPU1 is missing"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU9 NV1 X", 3, "a row called 'GPU9'"),
        (" GPU0 GPU1\nGPU0 X NV1\nGPU1 NV2 X", 2, "GPU0 to GPU1 is NV1, but GPU1 to GPU0 is"),
        (" GPU0 GPU1\nGPU0 SYS X\nGPU1 X SYS", 2, "GPU0 to GPU0 is SYS"),
    ],
)
def test_what_is_not_understood_is_pointed_at(text, line, words):
    with pytest.raises(TopologyTextError, match=f"^line {line}: .*{words}"):
        read_topology(text)


MATRIX = """Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 1510.00  93.28   7.50
     1  93.30 1508.10   7.51
     2   7.49   7.50 1511.90
"""


def test_a_measured_matrix_is_read_in_bytes_per_second():
    matrix = read_bandwidths(MATRIX)
    assert matrix[0] == pytest.approx([1510e9, 93.28e9, 7.5e9])
    assert len(matrix) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MATRIX.replace("7.51", "fast"), "line 4: 'fast' is not a number"),
        (MATRIX.replace("  7.51", ""), "2 numbers, where row 0 has 3"),
        (MATRIX.replace("     2 ", "     5 "), "2 rows found"),
        ("", "0 rows found"),
    ],
)
def test_a_damaged_matrix_is_pointed_at(text, words):
    with pytest.raises(TopologyTextError, match=words):
        read_bandwidths(text)
