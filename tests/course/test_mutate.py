"""Mutants made by rule: all are programs, none is the reference, and what the tests miss is told apart from what they catch."""
import ast

from minipt2.course import mutate, regions, tasks

KNOWN = tasks.all_tasks(tasks.home())


def test_every_exercise_has_mutants_and_all_are_answers():
    for number in ("0.2", "2.3", "3.4", "5.3", "8.1", "9.6"):
        task = KNOWN[number]
        found = mutate.proposals(task)
        assert len(found) > 3, number
        for proposal in mutate.chosen(found, 5, 0):
            text = proposal.applied(task.source)
            assert text != task.source
            mutant, reference = regions.answer(text, number), regions.answer(task.source, number)
            assert mutant != reference and ast.parse(mutant)


def test_kinds_and_descriptions():
    found = mutate.proposals(KNOWN["9.6"])
    assert {p.kind for p in (*found, *mutate.proposals(KNOWN["2.3"]), *mutate.proposals(KNOWN["8.1"]))} == {"operator", "bound", "order"}
    assert any("max  ->  min" in p.describe() for p in found)
    assert all(KNOWN["9.6"].source[p.start:p.end] == p.old for p in found)
    assert len({p.applied(KNOWN["9.6"].source) for p in found}) == len(found)


def test_the_choice_is_repeatable():
    found = mutate.proposals(KNOWN["3.4"])
    assert mutate.chosen(found, 5, 1) == mutate.chosen(found, 5, 1) != mutate.chosen(found, 5, 2)
    assert mutate.chosen(found, 10_000, 0) == found


def test_caught_and_surviving():
    """One that every test notices, and one that means the same."""
    task = KNOWN["9.6"]
    found = mutate.proposals(task)
    wrong = next(p for p in found if p.new == "min")
    at = task.source.index("(ready[k], k))")
    same = mutate.Proposal("order", 0, at, at + len("(ready[k], k)"), "(ready[k], k)", "(ready[k], k, 0)")
    verdicts = {p: outcome.passed for p, outcome in mutate.run(task, [wrong, same])}
    assert verdicts == {wrong: False, same: True}
