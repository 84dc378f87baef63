"""Random worlds and what may happen to them between two calls: modules, globals and closures as source text, and statements that change them.

A world is a module of its own with a function ``run(x)``. Statements are text too, so that a failure can be read and run by hand.
"""
from __future__ import annotations

import random
import re

from state_world import BLOCK, FOOTER, HEADER, LEAF, READ_BLOCK, READ_GLOBALS, READ_LEAF, RUN

LEAVES = ("net.leaf", "net.layers[0]", "net.seq[2]")
LINEARS = ("net.layers[1]", "net.seq[0]", "net.by_name['a']")
MODULES = (*LEAVES, *LINEARS, "net", "net.layers", "net.seq", "net.layers[2]", "net.seq[1]", "net.by_name['b']", "net.leaf.norm", "net.leaf.gate", "net.layers[0].drop")
HOLES = {
    "L": LEAVES, "M": MODULES, "W": (*LEAVES, *LINEARS),
    "P": (*(f"{m}.weight" for m in (*LEAVES, *LINEARS)), "net.leaf.bias", "net.seq[0].bias", "net.scales[0]", "net.parts['p']"),
    "B": ("net.leaf.offset", "net.layers[0].offset", "net.leaf.count", "net.leaf.norm.running_mean", "shift"),
    "i": ("0", "1", "2", "3", "-1", "True"), "f": ("0.5", "1.5", "2", "2.0", "-0.0", "0.0", "float('nan')", "1", "True"),
    "s": ("'tanh'", "'neg'", "'sum'", "''"), "b": ("True", "False"), "d": ("torch.float32", "torch.float64", "torch.bfloat16"),
    "n": ("1", "2", "3", "4", "5"), "D": ("torch.float64", "torch.float32"),
    "layer": ("nn.Tanh()", "nn.ReLU()", "Gate()", "nn.Identity()", "Leaf({n})", "nn.Sequential(nn.Tanh(), Gate())", "nn.LayerNorm(3)"),
    "fn": ("torch.tanh", "torch.relu", "F.relu", "F.silu", "nn.Tanh()", "Gate()", "lambda v: v * 3", "helper", "part", "caller", "other_helper"),
    "tensor": ("t({n}, 3)", "t({n}, 1)", "t({n}, 3, dtype={D})", "t({n}, 3, 3)", "t({n}, 3).requires_grad_()", "torch.ones(3, dtype=torch.int64)", "t({n}, 6)[::2]", "torch.tensor({f})"),
}  # fmt: skip
CHANGES = """
{P} = nn.Parameter(t({n}, 3, 3))
{P} = nn.Parameter(t({n}, 3, 3), requires_grad={b})
{W}.weight = nn.Parameter(t({n}, 3, 3).t())
{W}.weight = nn.Parameter(t({n}, 3, 3, dtype={D}))
{L}.weight = Own(t({n}, 3, 3))
{L}.weight = {L}.weight
{P}.data = {P}.data.clone().mul_(2)
{P}.data = {P}.data.to({D})
{P}.data = {P}.data.t()
{W}.weight.data = t({n}, 3, 3)
{P}.requires_grad_({b})
{M}.requires_grad_({b})
with torch.no_grad(): {P}.mul_(0.5)
{W}.register_parameter("bias", None)
{W}.bias = nn.Parameter(t({n}, 3))
del {W}.bias
del {L}.weight
{L}.register_parameter("late", nn.Parameter(t({n}, 3)))
{L}.late = {f}
{L}.late = nn.Parameter(t({n}, 3))
del {L}.late
{L}.extra = {i}
del {L}.extra
{L}.register_buffer("extra", t({n}, 3))
net.to({D})
net.double(), net.float()
{M}.to({D})
{B} = t({n}, 3)
{B} = t({n}, 3, dtype={D})
{B}.mul_(2)
{B}.data = t({n}, 3)
{L}.offset = None
{L}.offset = {L}.bias
{L}.register_buffer("offset", t({n}, 3), persistent={b})
del {L}.offset
{M}.train({b})
{M}.eval()
net.train({b})
{M}.training = {b}
{L}.factor = {f}
{L}.kind = {s}
{L}.steps = [{i}, {f}]
{L}.steps.append({f})
{L}.steps[0] = {f}
{L}.steps = tuple({L}.steps)
{L}.opts = {{"a": {f}, "z": {f}}}
{L}.opts = dict(reversed({L}.opts.items()))
{L}.opts["b"] = {f}
{L}.opts.pop("a", None)
{L}.opts["a"] = {L}.opts.pop("a", {f})
{L}.act = {fn}
{L}.norm = nn.Identity()
{L}.norm = nn.BatchNorm1d(3)
{L}.norm = {layer}
{L}.norm.eps = {f}
{L}.norm.momentum = {f}
{L}.norm.track_running_stats = {b}
{L}.drop.p = 0.25
{L}.drop = nn.Identity()
{L}.a = {L}.b = {i}
{L}.a = {f}
{L}.a = {L}.b
{L}.b = {L}.a = {tensor}
{L}.gate = {layer}
{L}.gate = {L}.gate
{L}.gate.__class__ = nn.Tanh
{L}.settings = Settings()
{L}.settings = settings
{L}.__dict__["factor"] = {f}
{L}.__dict__["late"] = {f}
{L}.__dict__.pop("late", None)
{L}.__dict__["gate"] = {fn}
{L}.__dict__.pop("gate", None)
{L}.__dict__["forward_part"] = {fn}
{L}.__dict__.pop("forward_part", None)
{L}.unit = {f}
del {L}.unit
Leaf.unit = {f}
Leaf.late = {f}
del Leaf.late
Leaf.extra = {i}
del Leaf.extra
Leaf.factor = property(lambda self: {f})
del Leaf.factor
Leaf.forward_part = lambda self, v: v + self.unit
Gate.forward = lambda self, v: v * {f}
Gate.forward = lambda self, v: torch.relu(v) - 1
{M}.forward = lambda v: v + {f}
vars({M}).pop("forward", None)
handles.append({M}.register_forward_hook(lambda m, a, out: out + {f}))
handles.append({M}.register_forward_hook(lambda m, a, out: out * {i}, prepend=True))
handles.append({M}.register_forward_pre_hook(lambda m, a: (a[0] - {f},)))
handles.append({M}.register_forward_hook(lambda m, a, kw, out: out + len(kw), with_kwargs=True))
handles.append({M}.register_full_backward_hook(lambda m, gi, go: None))
handles.append({P}.register_hook(lambda g: g * 2))
handles.pop().remove()
handles.pop(0).remove()
while handles: handles.pop().remove()
net.leaf = Leaf({n})
net.leaf = net.seq[2]
net.seq[2] = Leaf({n})
net.layers[2] = {layer}
net.layers[0] = net.leaf
net.layers.append({layer})
net.layers.insert(1, {layer})
del net.layers[-1]
net.layers = nn.ModuleList(reversed(net.layers))
net.seq[1] = {layer}
net.seq.append({layer})
net.seq.insert(1, {layer})
net.seq.pop(-1)
net.by_name["b"] = {layer}
net.by_name["c"] = {layer}
net.by_name.pop("c", None)
net.by_name["a"] = net.by_name.pop("a")
net.by_name.update({{"a": nn.Linear(3, 3, bias={b})}}); net.by_name["a"].weight.data = t({n}, 3, 3)
net.scales.append(nn.Parameter(t({n}, 3)))
net.scales[1] = net.scales[0]
net.scales[0] = nn.Parameter(t({n}, 3))
net.parts["r"] = nn.Parameter(t({n}, 3))
net.parts.pop("r")
net.parts["p"] = net.parts.pop("p")
net.extra_layer = {layer}
net.extra_layer = None
net.leaf.weight = net.seq[2].weight
net.leaf._modules.pop("gate"); net.leaf.gate = torch.tanh
net._modules["leaf"] = Leaf({n})
net.leaf._parameters["bias"] = nn.Parameter(t({n}, 3))
net.leaf._buffers["offset"] = t({n}, 3)
net._modules.move_to_end("leaf") if hasattr(net._modules, "move_to_end") else net._modules.update(leaf=net._modules.pop("leaf"))
parametrize.register_parametrization({W}, "weight", Double())
parametrize.remove_parametrizations({W}, "weight", leave_parametrized={b})
parametrizations.weight_norm({W})
parametrizations.orthogonal({W})
nn.utils.weight_norm({W})
nn.utils.remove_weight_norm({W})
scale = {f}
scale = {tensor}
flag = {b}
names = [{s}, {s}]
names.append({s})
names.reverse()
table = {{"a": {f}, "b": {f}}}
table["c"] = {f}
table.pop("c", None)
table = dict(reversed(table.items()))
table = collections.OrderedDict(table)
shift = {tensor}
shift.requires_grad_({b})
shift.data = t({n}, 3, dtype={D})
shift.add_(1)
act = {fn}
chosen_now = {fn}; rebind(chosen=chosen_now)
rebind(total={f})
rebind(extra={tensor})
rebind(pieces=[{f}, {f}])
rebind(pieces=({f}, {i}))
spot = Spot({f}, {f})
spot = spot._replace(a={i})
tags.add({s})
tags.discard("x")
mode = Mode.OFF
mode = Mode.ON
Mode.OFF, mode = Mode.OFF, Mode.OFF
pair.left = {f}
pair.right = {tensor}
pair = Pair({f})
slotted.value = {f}
slotted = Slotted({f})
settings.width = {f}
settings.name = {s}
settings.order = [{f}]
settings.order.append({f})
settings.depth = {f}
vars(settings).pop("depth", None)
Settings.depth = {i}
Settings.twice = property(lambda self: self.width * 3)
Settings.twice = {f}
settings.__dict__["twice"] = {i}
settings = Settings()
helper = other_helper
def helper(v, k={f}): return v + k
helper.__defaults__ = ({f},)
helper.__kwdefaults__ = {{"c": {f}}}
helper.__code__ = other_helper.__code__
part = functools.partial(helper, k={f})
part = functools.partial(other_helper, k={i})
part.keywords["k"] = {f}
caller.gain = {f}
Caller.gain = {f}
Caller.__call__ = lambda self, v: v - self.gain
Caller.method = lambda self, v: v * 2 - self.gain
bound = caller.method
bound = Caller().method
caller = Caller()
run.__defaults__ = ({f},)
run.__kwdefaults__ = {{"c": {f}}}
len = lambda v: 7
max = lambda *v: 9
globals().pop("len", None), globals().pop("max", None)
F = types.SimpleNamespace(linear=F.linear, gelu=F.silu, relu=F.relu, silu=F.silu, dropout=F.dropout)
F = torch.nn.functional
Mode = enum.Enum("Mode", "ON OFF"); mode = Mode.ON
Settings.__getattr__ = lambda self, name: {f}
del Settings.__getattr__
settings.__class__ = type("Other", (Settings,), {{"twice": 7}})
settings.missing = {f}
Settings.missing = {f}
Leaf.forward = lambda self, v: v @ self.weight + self.unit
Leaf.__call__ = lambda self, v: nn.Module.__call__(self, v) * 2
Pair.__eq__ = lambda self, other: True
net.leaf.steps = net.seq[2].steps
net.leaf.steps = settings.order
net.leaf.opts = table
net.leaf.opts = net.layers[0].opts
{L}.settings = {L}.settings
rebind(pieces=settings.order)
rebind(pieces=net.leaf.steps)
rebind(extra=shift)
rebind(extra={L}.offset)
{L}.offset = shift
{L}.offset = {L}.offset
{L}.offset = {L}.offset[:]
{L}.offset.data = {L}.offset.data
shift = {L}.offset
shift = {L}.offset.detach()
shift = {P}
{L}.bias.data = {L}.offset.data
{L}.register_buffer("late", shift)
"""
MODES = """
grad=True | grad=False | grad=None
cast=None | cast=None | cast=torch.bfloat16
default=torch.float32 | default=torch.float32 | default=torch.float64
x=t(2, 2, 3) | x=t(3, 2, 3) | x=t(2, 4, 3) | x=t(2, 2, 3).requires_grad_() | x=t(2, 2, 3, dtype=torch.float64) | x=t(2, 3, 2).t() | x=t(2, 1, 3)
"""
CHANGE_LINES = CHANGES.strip().splitlines()
MODE_CHOICES = [line.split(" | ") for line in MODES.strip().splitlines()]
HOLE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class StateWriter:
    """Worlds and changes by the choices of ``chooser``."""

    def __init__(self, chooser: random.Random):
        self.choose = chooser

    def fill(self, template: str) -> str:
        """Each hole gets one choice; the same module or parameter twice in one line is the same one, half of the time."""
        same: dict[str, str] = {}

        def one(match: re.Match) -> str:
            kind = match[1]
            if kind is None:
                return match[0][0]
            if kind in "LMPW" and kind in same and self.choose.random() < 0.5:
                return same[kind]
            same[kind] = found = self.fill(self.choose.choice(HOLES[kind]))
            return found

        return HOLE.sub(one, template)

    def body(self, lines: str, most: int) -> str:
        chosen = self.choose.sample(lines.strip().splitlines(), self.choose.randint(2, most))
        return "".join(f"        {line}\n" for line in chosen)

    def world(self) -> str:
        return (HEADER + LEAF + self.body(READ_LEAF, 9) + "        return h\n" + BLOCK + self.body(READ_BLOCK, 4) + "        return h\n"
                + RUN + self.body(READ_GLOBALS, 7) + FOOTER)  # fmt: skip

    def change(self) -> str:
        """One statement about the world, or ``mode: name=value`` about how it is called."""
        if self.choose.random() < 0.12:
            return "mode: " + self.choose.choice(self.choose.choice(MODE_CHOICES))
        return self.fill(self.choose.choice(CHANGE_LINES))
