"""Many runs of the speed-up tests: what is kept, and which chapters count as green."""
from chapters import pays

PAYS, NONE = "pays 1.700 [1.650, 1.760] floor 1.05 rounds 12", "inconclusive 1.050 [1.000, 1.100] floor 1.05 rounds 192"


def runs(*said):
    states = {"pays": "passed", "fails": "failed", "inconclusive": "inconclusive"}
    return [pays.Result(states[text.split()[0]], text, 1.0) for text in said]


def test_a_chapter_is_green_when_every_run_of_every_model_passed():
    table = {"test_chapter_pays[3-gpt2]": runs(PAYS, PAYS), "test_chapter_pays[3-mobilenetv2]": runs(PAYS, NONE),
             "test_chapter_8_pays[gpt2-1.8]": runs(PAYS, PAYS),
             "test_disconnected_it_does_not_pay[3-gpt2]": runs(NONE, NONE)}
    data = pays.record(table, [1.0, 2.0])
    assert [(r["chapter"], r["model"], r["control"], r["runs"]) for r in data["rows"]] == [
        (3, "gpt2", False, "pp"), (3, "mobilenetv2", False, "p?"), (8, "gpt2", False, "pp"), (3, "gpt2", True, "??")]
    assert data["rows"][0]["median"] == 1.7 and data["rows"][0]["floor"] == 1.05 and data["rows"][1]["low"] == 1.0 and data["seconds a run"] == [1, 2]
    assert pays.green(data["rows"], 2) == [8]
    assert pays.green(data["rows"], 3) == []


def test_every_chapter_says_what_is_compared():
    assert sorted(pays.COMPARED) == list(range(10))
