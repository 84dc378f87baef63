"""The parts of the worlds that ``state_writer`` writes: what stands in all of them, and the lines that read their state."""
HEADER = """
import collections, dataclasses, enum, functools, types
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.nn.utils import parametrizations, parametrize

def t(seed, *size, dtype=torch.float32):
    return (torch.rand(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.25).to(dtype)

scale, flag, names, table, shift, act, log = 2, True, ["a", "bb"], {"a": 1.5, "b": 2}, t(1, 3), F.relu, []
Spot = collections.namedtuple("Spot", ["a", "b"])
spot, tags = Spot(1, 0.5), {"x", "y"}

class Mode(enum.Enum):
    ON, OFF = 1, 2
mode = Mode.ON

class Settings:
    depth = 1
    def __init__(self):
        self.width, self.name, self.order = 2, "tanh", [1.0, 2.0]
    @property
    def twice(self):
        return self.width * 2

@dataclasses.dataclass
class Pair:
    left: object = 1
    right: object = 0.5

class Slotted:
    __slots__ = ("value", "other")
    def __init__(self, value):
        self.value = value

settings, pair, slotted = Settings(), Pair(), Slotted(1.5)

def helper(v, k=2, *, c=0.5):
    return v * k + c

def other_helper(v, k=3, *, c=1.5):
    return v - k * c

part = functools.partial(helper, k=3)

class Caller:
    gain = 2
    def __call__(self, v):
        return v * self.gain
    def method(self, v):
        return v + self.gain
caller = Caller()
bound = caller.method

class Double(nn.Module):
    def forward(self, w):
        return w * 2
    def right_inverse(self, w):
        return w / 2

class Own(nn.Parameter):
    pass

class Gate(nn.Module):
    def forward(self, v):
        return v * torch.sigmoid(v)

def pause():
    log.append(len(log))
    print(end="")
"""
LEAF = """
class Leaf(nn.Module):
    unit = 1.0
    def __init__(self, seed):
        super().__init__()
        self.weight, self.bias = nn.Parameter(t(seed, 3, 3)), nn.Parameter(t(seed + 1, 3))
        self.register_buffer("offset", t(seed + 2, 3))
        self.register_buffer("count", torch.zeros(()))
        self.factor, self.kind, self.steps, self.opts = 1.5, "tanh", [1, 2.0], {"a": 1.0, "d": 2.0}
        self.act, self.norm, self.drop, self.settings, self.gate = torch.tanh, nn.BatchNorm1d(3), nn.Dropout(0.5), settings, Gate()
        self.a = self.b = None
        self.seen = 0
    def forward(self, h):
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = Leaf(3)
        self.layers = nn.ModuleList([Leaf(11), nn.Linear(3, 3), nn.Tanh()])
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), Leaf(17))
        self.by_name = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": Gate()})
        self.scales = nn.ParameterList([nn.Parameter(t(5, 3)), nn.Parameter(t(6, 3))])
        self.parts = nn.ParameterDict({"p": nn.Parameter(t(7, 3)), "q": nn.Parameter(t(8, 3))})
        self.extra_layer = None
        with torch.no_grad():
            for k, p in enumerate(self.parameters()):
                p.copy_(t(30 + k, *p.shape))
    def forward(self, h):
"""
RUN = """
net = Block()

def make():
    total, extra, pieces, chosen = 2, t(9, 3), [1.0, 2.0], Gate()
    def run(x, k=1, *, c=0.5):
        h = x
"""
FOOTER = """
        return net(h)
    def rebind(**values):
        nonlocal total, extra, pieces, chosen
        total, extra, pieces, chosen = [values.get(k, v) for k, v in zip(("total", "extra", "pieces", "chosen"), (total, extra, pieces, chosen))]
    return run, rebind
run, rebind = make()
"""

READ_LEAF = """
h = h @ self.weight
h = F.linear(h, self.weight, self.bias)
h = h if self.bias is None else h + self.bias
h = h + self.offset
h = h * self.factor
h = h * 2 if self.training else h
h = torch.tanh(h) if self.kind == "tanh" else h + len(self.kind)
for k in self.steps: h = h + k
for k, v in self.opts.items(): h = h * v if k < "c" else h - v
h = h + self.opts.get("z", 0.25)
h = h + getattr(self, "late", 0.5)
h = h - 1 if hasattr(self, "extra") else h
h = h + self.unit
h = h + len(self._parameters) + len(self._buffers) * 10
for p in self.parameters(): h = h + p.sum()
for k, p in self.named_parameters(): h = h * 2 + p.mean() * len(k)
for k, b in self.named_buffers(): h = h + b.sum() * len(k)
h = h + len(list(self.modules()))
for m in self.children(): h = h + len(type(m).__name__)
self.seen += 1; h = h + self.seen
self.offset = self.offset * 0.5
self.count += 1; h = h + self.count
h = self.norm(h)
h = self.drop(h)
h = self.act(h)
h = self.gate(h)
h = h * self.settings.width
h = h + self.settings.order[0] + len(self.settings.order)
h = h + self.settings.twice + self.settings.depth
h = -h if self.settings.name == "neg" else h
h = h + self.weight.requires_grad * 2
h = h + self.weight.dim() + (self.weight.dtype == torch.float64)
h = h + isinstance(self.norm, nn.Identity) * 3
h = h + (1 if self.a is self.b else 2)
h = h + (1 if self.a is None else self.a)
h = h + self.weight.stride()[0]
h = h + len(self.state_dict())
h = h + sum(p.numel() for p in self.parameters() if p.requires_grad)
h = h + len(self.__dict__)
h = h + len([k for k in vars(self) if not k.startswith("_")])
h = h + (self.weight is self.gate) + isinstance(self.weight, Own) * 5
h = self.forward_part(h) if hasattr(self, "forward_part") else h
self._buffers["offset"] = h.detach().sum(0)[:3]
self.offset.add_(1); h = h + self.offset
self.offset.mul_(self.factor)
self.late = h.detach().sum()
self.steps.append(1.0)
self.opts["n"] = len(self.opts); h = h + sum(self.opts.values())
h = h + len(sorted(self.opts)[0])
h = h + self.opts.setdefault("s", 1.0)
h = h + (self.settings is settings) * 2 + (self.act is torch.tanh)
h = h + self.settings.__dict__.get("width", 0)
self.settings.width += 1; h = h * self.settings.width
self.settings.order[0] *= 2; h = h + settings.order[0]
h = h * type(self).unit
h = h + self.get_parameter("weight").sum()
h = h + next(self.parameters()).sum()
h = h + sum(1 for m in self.modules() if isinstance(m, nn.Tanh))
with torch.no_grad(): h = h + self.weight.sum()
h = checkpoint(self.gate, h, use_reentrant=False)
h = h + {self.gate: 1, self.norm: 3}.get(self.drop, 2)
h = h + (self.weight in set(self.parameters()))
h = F.dropout(h, self.drop.p, self.training)
h = h + (self.factor == 1.5) + (self.factor is True) * 2 + isinstance(self.factor, int) * 4
h = h + len(repr(self.kind))
h = h + (self.steps is not settings.order) + (self.steps == [1, 2.0]) * 2
h = h * 2 if "offset" in self.__dict__ or "gate" in self.__dict__ else h
"""
READ_BLOCK = """
h = self.leaf(h)
for layer in self.layers: h = layer(h)
for k, layer in enumerate(self.layers): h = layer(h) * k
h = self.seq(h)
for k, m in self.by_name.items(): h = m(h) * len(k)
h = self.by_name["a"](h)
h = self.layers[-1](h)
h = h + len(self.layers)
for layer in self.layers[1:]: h = layer(h)
for p in self.scales: h = h * p
h = h * self.scales[0]
for k, p in self.parts.items(): h = h + p * len(k)
h = h + self.parts["p"]
h = h if self.extra_layer is None else self.extra_layer(h)
h = h + len(self.training * "abc")
h = h + sum(p.sum() for p in self.parameters())
for k, m in self.named_children(): h = h + len(k)
for m in self.modules(): h = h + m.training
h = self.seq[0](h)
h = h + ("b" in self.by_name)
h = self.leaf(h) + self.leaf.forward(h)
self.leaf.offset = self.seq[2].offset * 0.5; h = h + self.leaf.offset
self.leaf.steps += self.seq[2].steps; h = h + len(self.layers[0].steps)
h = self.leaf(self.seq[2](self.layers[0](self.leaf(h))))
h = h + (self.leaf.settings is self.seq[2].settings) + (self.leaf.offset is self.seq[2].offset) * 2
pause()
"""
READ_GLOBALS = """
h = h * scale
h = h + shift
h = helper(h)
h = helper(h, k=2)
h = act(h)
h = h + 1 if flag else h - 1
h = h + table["a"]
for k, v in table.items(): h = h * v + len(k)
for n in names: h = h + len(n)
h = h + spot.a * spot.b
h = h + ("x" in tags) + len(tags)
h = h + mode.value if mode is Mode.ON else h
h = h + pair.left * pair.right
h = h + slotted.value
h = h + settings.depth * settings.width + settings.twice
h = h + len(settings.name) + settings.order[-1]
h = part(h)
h = caller(h)
h = bound(h)
h = h + torch.ones(3)
h = h + torch.is_grad_enabled() + torch.is_autocast_enabled("cpu") * 2
h = h.to(torch.get_default_dtype())
h = h + total
h = h + extra
for p in pieces: h = h * p
h = chosen(h)
h = h * k + c
h = h + len(names) + len(table)
h = F.gelu(h)
h = h + (net.leaf.weight is net.seq[2].weight)
h = h + torch.full((3,), 0.5, dtype=shift.dtype)
h = h + max(total, 1)
table["n"] = len(table); h = h + sum(table.values())
names.append("z"); h = h + len(names)
settings.order[0] += 1; h = h + settings.order[0]
slotted.value *= 2; h = h + slotted.value
shift.mul_(0.5); h = h + shift
h = h + (table == {"a": 1.5, "b": 2}) + (spot == (1, 0.5)) * 2 + (names == ["a", "bb"]) * 4 + (pair == Pair()) * 8
h = h + len(tags | {"q"}) + isinstance(settings, Settings) + callable(act)
h = h + helper.__defaults__[0] + (helper.__name__ == "helper") + len(helper.__code__.co_varnames)
h = h + caller.method(1.0)
h = functools.reduce(lambda a, b: a * b, pieces, h)
h = h + (x.dtype == torch.float32) + x.shape[0] * k
h = h + float(shift[0])
h = h + torch.rand(())
h = h + getattr(settings, "missing", 0.5)
h = torch.stack([h, h * scale]).sum(0)
h = h + (pieces is settings.order) + (shift is net.leaf.offset) * 2
h = h + len(f"{scale} {flag} {total}")
pause()
"""
