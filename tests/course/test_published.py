"""What holds for every published figure: words, a unit, an address; its figures are in them."""

import math
import re

from pytest import mark

from course import catalogue, published

FILES = sorted((catalogue.ROOT / "course" / "lessons").glob("*/published.json"))


@mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_figures_stand_in_their_quotations_and_have_an_address(path):
    figures = published.load(path.parent.name)
    assert figures
    for name, figure in figures.items():
        stated = [float(word) for word in re.findall(r"\d*\.?\d+", figure.quotation)]
        many = isinstance(figure.value, tuple)
        for number in figure.value if many else [figure.value]:
            if not stated:
                break  # words alone: "a pair of", "two operations"
            assert any(math.isclose(number, one) for one in stated), f"{name}: {figure.quotation}"
        assert figure.unit
        assert 3 < len(figure.quotation) < (1000 if many else 400), f"{name}: quote it briefly"
        source = figure.source
        assert re.match(r"https?://\S+\.\S+$", source.address), name
        assert re.search(r"20\d\d|[0-9a-f]{7}|tag v\d", source.when), f"{name}: no date, no commit"
        if commit := re.search(r"/(?:blob|tree)/([0-9a-f]{7})", source.address):
            assert f"commit {commit[1]}" in source.when
