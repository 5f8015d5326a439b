import pytest

from course.lessons.p2p_topology.topology import (
    DGX1,
    NVSWITCH,
    PCIE_TREE,
    PRESETS,
    PUZZLE,
    PUZZLE_TEXT,
    RTX3090,
    Topology,
    nvlinks,
)


def test_link_counts_alone_give_the_published_bandwidths():
    published = {1: 93.0e9, 2: 7.5e9, 4: 47e9}  # GPU Puzzlers 2023
    for dst, bandwidth in published.items():
        assert PUZZLE.bandwidth(0, dst) == pytest.approx(bandwidth, rel=0.1)


@pytest.mark.parametrize("topology", PRESETS.values(), ids=PRESETS)
def test_presets_are_symmetric_and_complete(topology):
    assert topology.gpus == 8
    for src in range(8):
        for dst in range(8):
            assert topology.link(src, dst) == topology.link(dst, src)
    assert all(
        rate > 0
        for i, row in enumerate(topology.bandwidths())
        for j, rate in enumerate(row)
        if i != j
    )


def test_every_gpu_uses_all_its_links():
    for topology, count in ((PUZZLE, 12), (DGX1, 6), (RTX3090, 4)):
        assert {sum(map(nvlinks, row)) for row in topology.classes} == {count}


def test_only_the_nvswitch_machine_is_switched():
    assert [topology.switched for topology in PRESETS.values()] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_private_nvlinks_are_one_resource_and_shared_ports_are_three():
    assert list(PUZZLE.resources(0, 1)) == [("link", 0, 1)]
    assert list(PUZZLE.resources(0, 2)) == [("PCIe", "out", 0), ("link", 0, 2), ("PCIe", "in", 2)]
    assert next(iter(NVSWITCH.resources(0, 2))) == ("NVSwitch", "out", 0)
    assert list(PUZZLE.as_fabric().resources(0, 2)) == [("link", 0, 2)]


def test_a_port_carries_what_its_fastest_link_carries():
    resources = PCIE_TREE.resources(0, 7)
    assert resources["PCIe", "out", 0] == PCIE_TREE.bandwidth(0, 1)
    assert resources["link", 0, 7] == PCIE_TREE.bandwidth(0, 7)


def test_a_measured_matrix_takes_the_place_of_the_table():
    rows = [" ".join([str(i), *(str(i * 8 + j + 1) for j in range(8))]) for i in range(8)]
    measured = PUZZLE.with_measured("\n".join(rows))
    assert measured.bandwidth(0, 1) == 2e9
    assert measured.bandwidth(1, 0) == 9e9
    assert measured.link(0, 1) == "NV4"
    with pytest.raises(ValueError, match="2 x 2; the topology has 8"):
        PUZZLE.with_measured("0 1 2\n1 3 4")


def test_errors_name_what_is_asked():
    with pytest.raises(ValueError, match="GPU 3 has no link to itself"):
        PUZZLE.bandwidth(3, 3)
    with pytest.raises(ValueError, match="no bandwidth for link class 'SOC'"):
        Topology.parse(PUZZLE_TEXT.replace("SYS", "SOC")).bandwidth(0, 2)


def test_a_machine_without_gpus_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="nvidia-smi topo -m did not answer"):
        Topology.here()
