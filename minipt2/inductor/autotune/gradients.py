"""On a CPU: are the gradients of a convolution faster as matrix products? Timed once for each shape and machine, remembered on disk.

Patches and sums are timed as eager makes them; ours are made in loops with what is beside them. Upstream: ``torch._inductor.select_algorithm``.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F

from ..passes.unfolded import Gradients
from .cpu import seconds_of, winner_of
from .race import pick

VENDOR, PRODUCTS = "vendor", "products"


def worth_unfolding(problem: Gradients) -> bool:
    """Whether two products, with the patches and the sum around them, are faster than the vendor's kernel."""
    return winner_of(_race, problem) == PRODUCTS


def _race(problem: Gradients, seconds: float, times: dict[str, float]) -> str:
    with torch.no_grad():
        runs = contenders(problem)
        return pick([VENDOR, PRODUCTS], lambda name: seconds_of(runs[name]), lambda name: True, seconds, times)


def contenders(problem: Gradients) -> dict[str, Callable[[], Any]]:
    """How each computes ``problem`` on numbers of its own."""
    generator = torch.Generator().manual_seed(0)
    def random(shape: tuple[int, ...], last: bool) -> torch.Tensor:
        made = torch.randn(shape, generator=generator)
        return made.to(memory_format=torch.channels_last) if last else made
    shape, stride, padding, dilation = problem.weight, problem.stride, problem.padding, problem.dilation
    x, weight = random(problem.image, problem.channels_last[1]), random(shape, problem.channels_last[2])
    grad = random(tuple(F.conv2d(x[:1].to("meta"), weight.to("meta"), None, stride, padding, dilation).shape[1:]), False)
    grad = random((problem.image[0], *grad.shape), problem.channels_last[0])
    places, (out, channels, high, wide) = grad.shape[0] * grad.shape[2] * grad.shape[3], shape
    taps, for_image, for_weight = high * wide, *problem.wanted
    matrix, patches, rows = random((out, channels * taps), False), random((places, channels * taps), False), random((places, out), False)
    windows = patches.reshape(len(x), places // len(x), channels * taps).transpose(1, 2).contiguous()

    def vendor() -> Any:
        return torch.ops.aten.convolution_backward(grad, x, weight, None, stride, padding, dilation, False, [0, 0], 1, [for_image, for_weight, False])

    def products() -> Any:
        made = [rows.copy_(grad.permute(0, 2, 3, 1).reshape(places, out))]
        if for_weight:
            if taps > 1:
                made.append(F.unfold(x, (high, wide), dilation, padding, stride))
            elif not problem.channels_last[1]:
                made.append(x.contiguous(memory_format=torch.channels_last))
            made.append(rows.t() @ patches)
        if for_image:
            made.append(rows @ matrix)
            if taps > 1:
                made.append(F.fold(windows, problem.image[2:], (high, wide), dilation, padding, stride))
        return made
    return {VENDOR: vendor, PRODUCTS: products}
