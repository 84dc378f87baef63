"""Linear layers and convolutions with packed weights: what the C computes, and when a graph uses it."""
import ctypes

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minipt2
from minipt2.config import config
from minipt2.inductor import products
from minipt2.inductor.autotune import cpu
from minipt2.inductor.codegen.c_openmp_products import ACTIVATIONS, GEOMETRY
from minipt2.inductor.passes import choose_layouts, pack_products
from minipt2.inductor.products import Problem, Window, pack, pack_filter, product

from .graphs import inference_graph, run, targets

pytestmark = [pytest.mark.usefixtures("fresh")]


@pytest.fixture
def always(monkeypatch):
    """Whatever may be packed is packed."""
    monkeypatch.setattr(cpu, "worth_packing", lambda problem: True)


def computed(x, packed, bias, other, problem, activation="none", numbers=()):
    """What the C function makes of a product."""
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7)(products.address())
    out = torch.full_like(product(x, packed, bias, other, problem.columns, problem.window, "none", ()), 7.0)
    sizes = (ctypes.c_int64 * len(GEOMETRY))(*cpu.geometry(x, out, problem)[:-1], products.code(activation))
    scalars = (ctypes.c_double * 2)(*[*numbers, 0.0, 0.0][:2])
    function(sizes, scalars, *[None if t is None else t.data_ptr() for t in (x, packed, bias, other, out)])
    return out


def allowed(depth, eager_error):
    """How far off sums of ``depth`` products may be: by rounding, or three times as far as eager's."""
    return max(1e-5 * depth ** 0.5 + 1e-5, 3 * float(eager_error.abs().max()))


@pytest.mark.parametrize("rows", [1, 3, 6, 17, 200, 385])
@pytest.mark.parametrize("depth,columns", [(1, 1), (5, 16), (384, 8), (385, 24), (900, 33)])
def test_matrices_of_any_size(rows, depth, columns):
    x, weight, bias = torch.randn(rows, depth + 3)[:, :depth], torch.randn(depth, columns), torch.randn(columns)
    other = torch.randn(rows, columns)
    problem = Problem(rows, depth, columns, None, None)
    expected = x.double() @ weight.double() + bias + other
    bound = allowed(depth, x @ weight + bias + other - expected)
    assert (computed(x, pack(weight), bias, other, problem) - expected).abs().max() < bound


@pytest.mark.parametrize("taps,stride,padding,dilation", [((1, 1), (2, 1), (0, 0), (1, 1)), ((3, 3), (1, 1), (1, 1), (1, 1)), ((3, 2), (2, 3), (2, 1), (1, 2)),
                                                          ((7, 7), (2, 2), (3, 3), (1, 1)), ((3, 3), (1, 1), (4, 4), (3, 3)),
                                                          ((4, 4), (4, 4), (0, 0), (1, 1)), ((2, 5), (1, 2), (1, 0), (2, 1)), ((9, 11), (1, 1), (0, 0), (1, 1))])
@pytest.mark.parametrize("channels,columns", [(8, 20), (3, 16), (400, 5)])
def test_images_of_any_geometry(taps, stride, padding, dilation, channels, columns):
    image = (2, channels, 9, 11)
    x = torch.randn(image).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(columns, channels, *taps), torch.randn(columns)
    expected = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding, dilation)
    problem = Problem(expected.numel() // columns, channels * taps[0] * taps[1], columns, image, Window(taps, stride, padding, dilation))
    packed = pack_filter(weight)
    bound = allowed(problem.depth, F.conv2d(x, weight, bias, stride, padding, dilation) - expected)
    assert (computed(x, packed, bias, None, problem) - expected).abs().max() < bound
    assert (product(x, packed, bias, None, columns, problem.window, "none", ()) - expected).abs().max() < bound


@pytest.mark.parametrize("taps,stride,padding,dilation", [((3, 3), (1, 1), (1, 1), (1, 1)), ((3, 2), (2, 3), (2, 1), (1, 2)), ((5, 5), (1, 2), (2, 2), (1, 1)),
                                                          ((1, 1), (1, 1), (0, 0), (1, 1)), ((8, 7), (1, 1), (4, 3), (1, 1))])
@pytest.mark.parametrize("channels", [16, 5, 40, 400])
def test_depthwise_convolutions_of_any_geometry(taps, stride, padding, dilation, channels):
    """Beside the image lies nothing that may be read: it fills its memory to the last number."""
    image = (2, channels, 9, 11)
    x = torch.randn(image).to(memory_format=torch.channels_last)
    weight, bias = torch.randn(channels, 1, *taps), torch.randn(channels)
    convolved = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding, dilation, channels)
    other = torch.randn(convolved.shape).to(memory_format=torch.channels_last)
    problem = Problem(convolved.numel() // channels, taps[0] * taps[1], channels, image, Window(taps, stride, padding, dilation, True))
    expected = F.hardswish(convolved + other)
    bound = allowed(problem.depth, F.hardswish(F.conv2d(x, weight, bias, stride, padding, dilation, channels) + other) - expected)
    assert (computed(x, pack_filter(weight), bias, other, problem, "hardswish") - expected).abs().max() < bound
    assert (product(x, pack_filter(weight), bias, other, channels, problem.window, "hardswish", ()) - expected).abs().max() < bound


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_activations_and_special_values(activation):
    x = torch.tensor([-float("inf"), float("inf"), float("nan"), -20.0, -3.0, -0.5, 0.0, 0.5, 3.0, 7.0] * 7)[:, None]
    packed, problem = pack(torch.ones(1, 20)), Problem(70, 1, 20, None, None)
    numbers = {"hardtanh": (-1.0, 2.0), "leaky_relu": (0.3,)}.get(activation, ())
    # in double: eager's gelu of an infinite float is NaN where it runs on AVX-512
    expected = product(x.double(), packed.double(), None, None, 20, None, activation, numbers).float()
    torch.testing.assert_close(computed(x, packed, None, None, problem, activation, numbers), expected, equal_nan=True, rtol=2e-6, atol=1e-6)


def test_several_threads_compute_the_same(monkeypatch):
    x, weight = torch.randn(130, 64), torch.randn(64, 100)
    problem = Problem(130, 64, 100, None, None)
    one = computed(x, pack(weight), None, None, problem)
    torch.set_num_threads(3)
    try:
        assert torch.equal(computed(x, pack(weight), None, None, problem), one)
        short = Problem(5, 64, 100, None, None)  # fewer rows than threads: columns are shared out
        torch.testing.assert_close(computed(x[:5].clone(), pack(weight), None, None, short), one[:5])
    finally:
        torch.set_num_threads(1)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 40), nn.Linear(40, 24, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 24, 3, padding=1, bias=False), nn.Conv2d(24, 8, 1)
        self.norm = nn.BatchNorm2d(24)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x):
        return torch.relu(x + self.second(F.hardswish(self.norm(self.first(x)))))


class Patches(nn.Module):
    """Few channels, but those of a patch's row lie side by side."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 8, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Separable(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.wide = nn.Conv2d(24, 24, 3, 2, 1, groups=24), nn.Conv2d(24, 16, 1, bias=False)

    def forward(self, x):
        return self.wide(F.hardswish(self.deep(x)))


@pytest.mark.parametrize("module,x,left", [(Layers(), torch.randn(4, 9, 24), {"erf", "addmm", "mm"}), (Convolutions().eval(), torch.randn(2, 8, 10, 10), {"convolution", "relu"}),
                                           (Patches(), torch.randn(2, 3, 16, 16), {"convolution"}),
                                           (Separable(), torch.randn(2, 24, 11, 11), {"convolution", "clamp"})])
def test_graphs_use_it_with_bias_residual_and_activation(always, module, x, left):
    gm, args = inference_graph(module.requires_grad_(False), x)
    before = run(gm, args)
    choose_layouts(gm)
    assert pack_products(gm) == 2
    assert not left & set(targets(gm))
    torch.testing.assert_close(run(gm, args), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("module,x", [(Layers(), torch.randn(4, 9, 24)), (Convolutions().eval(), torch.randn(2, 8, 10, 10))])
def test_compiled_models_give_eagers_numbers_and_see_new_parameters(always, module, x):
    compiled = minipt2.compile(module)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
        for p in module.parameters():
            p.mul_(-1.5)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)  # with gradients nothing is packed
    assert minipt2.counters()["fallbacks"] == 0


def test_rows_that_vary(always):
    module = Layers()
    compiled = minipt2.compile(module, dynamic=True)
    with torch.no_grad():
        for batch, length in ((3, 7), (5, 16), (2, 90), (6, 400)):
            x = torch.randn(batch, length, 24)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
    assert minipt2.counters()["graphs"] == 1


class Windows(nn.Module):
    """A convolution of each kind: a row of taps as one, depthwise, dilated, one pixel at a time with a residual."""

    def __init__(self, stride, padding, dilation, taps, channels):
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, channels, 3, stride), nn.Conv2d(20, 12, (1, 3), (2, 1))
        self.deep = nn.Conv2d(channels, channels, taps, stride, padding, dilation, groups=channels, bias=False)
        self.wide, self.same = nn.Conv2d(channels, 20, taps, 1, padding, dilation), nn.Conv2d(20, 20, 1)

    def forward(self, x):
        x = self.wide(F.relu6(self.deep(F.hardswish(self.stem(x)))))
        return self.last(F.relu(x + self.same(x)))


@pytest.mark.parametrize("geometry", [(1, 1, 1, 3, 16), (2, 1, 1, 3, 24), ((2, 1), (0, 2), (1, 2), (3, 2), 10), (1, 2, 2, 3, 5), ((1, 2), 0, 1, 2, 33)])
def test_images_that_vary(always, monkeypatch, geometry):
    """One compilation for any batch, height and width, odd ones and larger ones than the first."""
    packed = []
    monkeypatch.setattr(cpu, "worth_packing", lambda problem: packed.append(problem) or True)
    module = Windows(*geometry).eval()
    compiled = minipt2.compile(module, dynamic=True)
    with torch.no_grad():
        for batch, high, wide in ((3, 24, 31), (2, 40, 17), (7, 33, 33), (2, 19, 64), (5, 18, 18), (11, 57, 20)):
            x = torch.randn(batch, 3, high, wide)
            expected = module(x)
            found = compiled(x)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            assert found.stride() == expected.stride()
    assert minipt2.counters()["graphs"] == 1 and len(packed) >= 2
    assert all(isinstance(n, int) and problem.image[0] == 3 for problem in packed for n in problem.image)  # raced for the first call's sizes


def test_a_batch_that_is_a_count_of_elements(always):
    """Nobody knows how many images are chosen before the call."""
    module = nn.Sequential(nn.Conv2d(8, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, groups=24)).eval()

    def chosen(x, keep):
        return module(x[torch.nonzero(keep).squeeze(1)])
    compiled = minipt2.compile(chosen, dynamic=True)
    with torch.no_grad():
        for count in (5, 2, 9):
            x, keep = torch.randn(12, 8, 11, 9), torch.arange(12) < count
            torch.testing.assert_close(compiled(x, keep), chosen(x, keep), rtol=1e-5, atol=1e-5)


def test_an_image_whose_size_is_read_from_a_tensor_is_not_raced(monkeypatch):
    """Nobody knows for which size to ask: a guess might be more than fits into memory."""
    raced = []
    monkeypatch.setattr(cpu, "worth_packing", lambda problem: raced.append(problem) or True)
    module = nn.Conv2d(8, 24, 3, padding=1).eval()

    def rows(x, keep):
        image = x[:, :, torch.nonzero(keep).select(1, 0)]
        torch._check(image.shape[2] >= 2)
        return module(image)
    compiled = minipt2.compile(rows, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for count in (5, 9):
            x, keep = torch.randn(3, 8, 11, 12), torch.arange(11) < count
            torch.testing.assert_close(compiled(x, keep), rows(x, keep), rtol=1e-5, atol=1e-5)
    assert not raced


def test_a_bias_with_gaps_and_a_transposed_operand_stay_with_the_vendor(always):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias, self.weight = nn.Parameter(torch.randn(40)[::2]), nn.Parameter(torch.randn(24, 20))

        def forward(self, x):
            return torch.addmm(self.bias, x, self.weight), x.t() @ torch.ones(30, 2)
    module, x = Odd(), torch.randn(30, 24)
    with torch.no_grad():
        torch.testing.assert_close(minipt2.compile(module)(x), module(x), rtol=1e-5, atol=1e-5)


def test_some_channels_of_an_image(always):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x):
            return self.conv(x[:, 8:]), self.conv(x[:, :8] * 2)
    module, x = Half(), torch.randn(2, 16, 10, 10).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for got, want in zip(minipt2.compile(module)(x), module(x)):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_setting_turns_it_off(always):
    module, x = Layers(), torch.randn(30, 24)
    with config.patch(packed_products=False), torch.no_grad():
        assert not any("products = address()" in text for _, text in minipt2.explain(module)(x).code)


def test_the_race_is_run_once_and_kept(monkeypatch):
    raced = []
    monkeypatch.setattr(cpu, "_race", lambda problem, seconds, times: raced.append(problem) or cpu.OWN)
    problem = Problem(50, 24, 40, None, None)
    cpu._remembered.cache_clear()
    assert cpu.worth_packing(problem) and cpu.worth_packing(problem)
    cpu._remembered.cache_clear()
    assert cpu.worth_packing(problem)  # from disk
    assert raced == [problem]


@pytest.mark.parametrize("problem", [Problem(64, 32, 48, None, None), Problem(200, 72, 16, (2, 8, 10, 10), Window((3, 3), (1, 1), (1, 1), (1, 1)))])
def test_a_race_names_a_winner_and_says_how_long_each_took(problem):
    times = {}
    assert cpu._race(problem, 1.0, times) in (cpu.OWN, cpu.VENDOR)
    assert times.keys() == {cpu.OWN, cpu.VENDOR} and all(t > 0 for t in times.values())


def test_no_compiler_no_packing(monkeypatch):
    from minipt2.errors import CompilerNotFound

    def missing():
        raise CompilerNotFound("none")
    monkeypatch.setattr(cpu, "address", missing)
    assert not cpu.worth_packing(Problem(64, 32, 48, None, None))
