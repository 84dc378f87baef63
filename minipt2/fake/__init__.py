"""Tensors without data: what ``dynamo`` and ``aot_autograd`` run operators on to learn the results' metadata.

In: real tensors (``FakeMode.from_tensor``) and ATen overloads. Out: ``FakeTensor`` objects that look to autograd, autocast and
composite operators like tensors of the real device, and hold only a meta tensor. Called by ``dynamo.output_graph``,
``aot_autograd.trace`` and ``inductor.passes``.

* ``tensor``: ``FakeTensor`` and ``FakeMode``; an operator runs its meta kernel on the meta tensors within.
* ``data``: operators whose result, or its size, depends on data.
* ``rules``: operators whose metadata depends on more than their meta kernel says, and the choice among all of these.
* ``families``, ``images``, ``factories``: whole families of operators in plain Python, faster than their meta kernels.
* ``rows``: operators whose result is row-major whatever the memory order of their operands.
* ``views``: the same for views of tensors with symbolic sizes. ``composed``, ``recurrent``: functions that C++ composes for known sizes only.
* ``borrowed``: everything else goes to upstream's fake tensors, whose import takes longer than most captures.

Upstream: ``torch._subclasses.fake_tensor`` and ``torch._subclasses.fake_impls``.
"""
from . import factories as _factories, images as _images  # their entries in the table of families
from .borrowed import for_strangers
from .composed import run
from .recurrent import steps_vary
from .tensor import DataDependent, DynamicShape, FakeMode, FakeTensor, Unfakeable

__all__ = ["DataDependent", "DynamicShape", "FakeMode", "FakeTensor", "Unfakeable", "for_strangers", "run", "steps_vary"]
