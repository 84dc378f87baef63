"""Why something was not captured or compiled: the stable names of the reasons, what each is called, and the usual way out.

``Unsupported(code, ...)`` takes its advice from here where the place that raises it has nothing better to say. What a reason means, with
a program that meets it and one that does not, is a page of the site: ``site/breaks/<code>.md``. Numbers are never given to another reason.
1xx: a tensor's data decide; 2xx: a Python value; 3xx: a call; 4xx: a kind of code; 5xx: captured, but not compiled ahead of time;
9xx: limits of the rewriting itself. Upstream: ``torch/_dynamo/graph_break_registry.json``.
"""
from __future__ import annotations

from typing import NamedTuple

_ELSEWHERE = "move it out of the compiled code, or into a function marked minipt2.disable"


class Reason(NamedTuple):
    title: str
    advice: str = _ELSEWHERE


REASONS: dict[str, Reason] = {
    "MP101": Reason("data-dependent branch", "compute both and choose with torch.where, or decide outside the compiled code"),
    "MP102": Reason("a tensor's value as a Python value", "keep the value in a tensor, or read it outside the compiled code"),
    "MP103": Reason("data-dependent size",
                    "state what holds of it with torch._check before it is needed, or use operations whose result has a known size (masks, torch.where with three arguments)"),
    "MP201": Reason("an attribute that is not known", "read the attribute outside the compiled code and pass it in"),
    "MP202": Reason("an attribute that cannot be set", "set the attribute outside the compiled code"),
    "MP204": Reason("iteration over something unknown", "make it a list or tuple outside the compiled code"),
    "MP205": Reason("truth or length that is not known", "compute it outside the compiled code and pass in the bool or int"),
    "MP207": Reason("a method that is not known", "call the method outside the compiled code and pass in its result"),
    "MP209": Reason("a value of which too little is known", "pass in what is read from the object instead of the object"),
    "MP210": Reason("an operator on values that are not known", "compute it outside the compiled code and pass in a number or tensor"),
    "MP211": Reason("a key whose hash is not known", "use numbers, strings, tuples of those, or the object's own identity as keys"),
    "MP212": Reason("the order of a set", "use a list, a dict, or sorted(...)"),
    "MP213": Reason("an iterator that does not seem to end", "bound it with itertools.islice or zip"),
    "MP214": Reason("a very large constant", "compute it once, outside the compiled code"),
    "MP215": Reason("the text of an object", "print or format objects outside the compiled code"),
    "MP216": Reason("a descriptor that is not Python code", "use a plain method, a property or an attribute"),
    "MP217": Reason("a marked size that the code fixes", "make the line work for any size, or do not mark the dimension dynamic"),
    "MP301": Reason("a tensor method that cannot be in a graph", "call it on the tensor outside the compiled code"),
    "MP302": Reason("input or output", "print, log, read and warn outside the compiled code"),
    "MP303": Reason("a call whose effects are not known", "move the call out of the compiled code, or write it with torch operations"),
    "MP304": Reason("a look at the interpreter itself", "pass in what the code needs instead of looking it up"),
    "MP305": Reason("a function that is disabled", "remove minipt2.disable, or call it outside"),
    "MP306": Reason("an object made while tracing", "make it once, outside the compiled code, and pass it in"),
    "MP307": Reason("module hooks that cannot be traced", "call the module outside the compiled code"),
    "MP308": Reason("an operation that fails", "if eager raises too, correct the shapes or dtypes; failing on purpose belongs outside the compiled code"),
    "MP309": Reason("a scripted module", "compile the original module instead"),
    "MP310": Reason("a special kind of tensor", "take the plain tensors inside it (x.as_subclass(torch.Tensor)) before the compiled code"),
    "MP312": Reason("a torch function that changes the process", "call it outside the compiled code"),
    "MP313": Reason("a function transform", "apply function transforms outside the compiled code"),
    "MP314": Reason("an autograd.Function that is more than a function", "make forward and backward functions of their arguments alone"),
    "MP315": Reason("a context manager that is not known", "enter it outside the compiled code"),
    "MP316": Reason("NumPy inside a graph", "use the torch function in compiled code"),
    "MP317": Reason("differentiation inside a graph", "differentiate outside the compiled code"),
    "MP318": Reason("reading the clock", "measure time outside the compiled code"),
    "MP401": Reason("calls nested too deep", "replace the recursion by a loop"),
    "MP402": Reason("asynchronous code", "await outside, and compile the plain functions that are called"),
    "MP404": Reason("the definition of a class", "define the class outside the compiled function"),
    "MP405": Reason("a first import", "import it at the top of the file"),
    "MP406": Reason("an exception group", "catch exceptions one at a time, with except"),
    "MP407": Reason("an exception that leaves the frame", "exceptions that nobody catches are raised outside graphs"),
    "MP501": Reason("an operator that cannot be compiled", "use an operator that returns its result"),
    "MP502": Reason("memory shared in a way that is lost", "clone() the tensor before it is written"),
    "MP503": Reason("a gradient differentiated again", "run the part that needs create_graph=True uncompiled (minipt2.disable)"),
    "MP900": Reason("a frame that cannot be cut", "move what breaks it into a function of its own"),
    "MP902": Reason("an argument that graphs cannot hold", "pass tensors, numbers, strings and containers of those to operations"),
    "MP903": Reason("a value that cannot be handed over", "make it, use it and drop it on the same side of the break"),
}
