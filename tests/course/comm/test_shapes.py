from course.comm import shapes


def test_vgg11_has_the_counts_of_the_forum_thread():
    specs = shapes.vgg11()
    assert len(specs) == 22
    assert sum(s.numel for s in specs) == 132_863_336
    classifier = [s for s in specs if s.name.startswith("classifier")]
    assert round(sum(s.nbytes for s in classifier) / 1e6, 1) == 494.6
    assert round(max(s.nbytes for s in specs) / 1e6) == 411


def test_resnet50_has_the_counts_of_the_pull_request():
    specs = shapes.resnet50()
    assert len(specs) == 320
    assert round(sum(s.nbytes for s in specs) / 1e6, 1) == 102.4
    assert sum(s.nbytes < 16 * 1024 for s in specs) == 266
    assert sum(s.dtype == "int64" for s in specs) == 53
    assert len({s.name for s in specs}) == 320


def test_bytes_shrink_with_the_square_of_the_width():
    whole, half = (sum(s.nbytes for s in shapes.vgg11(width=w)) for w in (1.0, 0.5))
    assert 0.24 < half / whole < 0.27
    assert len(shapes.resnet50(width=0.25)) == 320
