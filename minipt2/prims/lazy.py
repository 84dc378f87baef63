"""A GraphModule that writes its Python code only when it is called or shown: most graphs of a compilation are only read by the next stage."""
from __future__ import annotations

from typing import Any

from torch import fx


class LazyGraphModule(fx.GraphModule):
    """As ``fx.GraphModule``; generating and compiling source text costs about as much as expanding the graph.

    Upstream: ``torch.fx._lazy_graph_module``.
    """

    def recompile(self) -> None:
        """Note that the graph changed."""
        type(self).forward = LazyGraphModule.forward

    def forward(self, *args: Any) -> Any:
        self.real_recompile()
        return self(*args)

    def real_recompile(self) -> None:
        """Generate ``forward`` from the graph now."""
        super().recompile()

    @property
    def code(self) -> str:
        if type(self).forward is LazyGraphModule.forward:
            self.real_recompile()
        return super().code
