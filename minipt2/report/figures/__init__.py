"""Figures made by running the package: the site draws them at build time, the report for a user's own model.

In: a function and its arguments. Out: a ``Figure``, whose ``html()`` reads without JavaScript and whose ``data`` are the numbers drawn.
Each kind is one file with one function; all of them listen to ``minipt2.trace``.
"""
from .code import beside
from .decompose import census, explorer
from .frame import ASSETS, Figure, Line, Pane, State, script, style
from .guard_tree import guard_tree
from .joint import joint_graph
from .loops import fusion
from .number_line import number_line
from .pipeline import pipeline
from .races import Race, races
from .rounds import rounds
from .stepper import stepper

__all__ = ["ASSETS", "Figure", "Line", "Pane", "Race", "State", "beside", "census", "explorer", "fusion", "guard_tree", "joint_graph", "number_line",
           "pipeline", "races", "rounds", "script", "stepper", "style"]
