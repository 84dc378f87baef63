"""The recorded races of chapter 7: every configuration still makes a kernel, each its own."""
from chapters import races


def test_every_configuration_makes_its_kernel(fresh):
    for race in races.recorded():
        assert len(race.labels) == len(race.microseconds) == len(race.texts) and min(race.microseconds) > 0
        assert all("@triton.jit" in text for text in race.texts)
        assert len(set(race.texts)) == len(race.texts)
    assert "library" in race.labels[0] and "tl.dot" in race.texts[1] and "tl.dot" not in race.texts[0]
