"""The course's tools: exercises made from the package itself, a checker that runs the whole compiler on a student's answer, grading.

In: a folder of exercises (``exercises/<number>_<name>/``: ``task.toml`` and tests) and a student's folder. Out: verdicts on a terminal, a
progress file, ``results.json``, JUnit XML, Markdown. Called by ``minipt2 learn`` and ``minipt2 course``. One source: a stub is the
package's file without the lines between the marks of ``minipt2.exercise``, and an answer is put in place of the function it came from.
Upstream has no counterpart; the format of marks follows the habit of teaching repositories.
"""
