from PIL import Image
from pytest import mark

from labkit.course import pictures

README = (pictures.ROOT / "README.md").read_text()


@mark.parametrize("name", pictures.recorded())
def test_the_readme_shows_each_recorded_run(name):
    path = pictures.ROOT / pictures.FOLDER / f"{name}.png"
    assert f"({pictures.FOLDER}/{name}.png)" in README
    with Image.open(path) as picture:
        assert picture.text["Software"] == "labkit"
        assert len(picture.text["Description"]) > 40


def test_pictures_are_drawn_from_the_records(tmp_path):
    drawn = list(pictures.draw_all(tmp_path))
    assert [path.stem for path in drawn] == pictures.recorded()
    assert all(path.stat().st_size > 10_000 for path in drawn)
