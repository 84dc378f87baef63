"""Nothing that was captured changes unnoticed: modules, their structure, hooks, parameters and buffers."""
import pytest
import torch
from torch import nn

from changes import noticed, patch
from minipt2.dynamo import guard_table


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.by_name = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Tanh()})
        self.extra = None
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))])
        self.register_buffer("offset", torch.ones(3))
        self.eval()

    def forward(self, x):
        x = self.norm(self.first(x)) + self.offset
        for layer in self.layers:
            x = layer(x)
        for name, layer in self.by_name.items():
            x = layer(x)
        for scale in self.scales:
            x = x * scale
        if self.extra is not None:
            x = self.extra(x)
        return self.seq(x)


def seeded(cls, *args, **kwargs):
    torch.manual_seed(1)
    return cls(*args, **kwargs)


def restrided(p):
    p.data = p.data.t()


ROWS = {
    "submodule_replaced": lambda n: setattr(n, "first", seeded(nn.Linear, 3, 3, bias=False)),
    "submodule_of_another_class": lambda n: n.seq.__setitem__(1, nn.Sigmoid()),
    "submodule_added_to_list": lambda n: n.layers.append(nn.Tanh()),
    "submodule_removed_from_list": lambda n: n.layers.__delitem__(1),
    "submodule_added_to_sequential": lambda n: n.seq.append(nn.Tanh()),
    "submodule_added_to_dict": lambda n: n.by_name.update({"c": nn.Sigmoid()}),
    "submodule_dict_order": lambda n: n.by_name.update({"a": n.by_name.pop("a")}),
    "none_becomes_submodule": lambda n: setattr(n, "extra", nn.Tanh()),
    "forward_replaced_on_instance": lambda n: setattr(n.first, "forward", lambda x: x - 1),
    "forward_hook": lambda n: n.first.register_forward_hook(lambda m, a, out: out + 1) and None,
    "forward_pre_hook": lambda n: n.first.register_forward_pre_hook(lambda m, a: (a[0] + 1,)) and None,
    "forward_hook_on_the_whole": lambda n: n.register_forward_hook(lambda m, a, out: out + 1) and None,
    "forward_hook_on_a_leaf_without_parameters": lambda n: n.layers[1].register_forward_hook(lambda m, a, out: out + 1) and None,
    "global_forward_hook": lambda n: nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1 if m is n.first else None),
    "train_of_a_submodule": lambda n: n.norm.train() and None,
    "train_of_the_whole": lambda n: n.train() and None,
    "constant_of_a_layer": lambda n: setattr(n.norm, "eps", 0.5),
    "constant_of_a_layer_equal_but_bool": lambda n: setattr(n.norm, "momentum", True),
    "parameter_replaced": lambda n: setattr(n.first, "weight", nn.Parameter(torch.eye(3, dtype=torch.float32))),
    "parameter_values": lambda n: n.first.weight.data.mul_(2).shape and None,
    "parameter_to_double": lambda n: n.double() and None,
    "parameter_data_of_another_dtype": lambda n: setattr(n.first.weight, "data", n.first.weight.data.double()),
    "parameter_data_restrided": lambda n: restrided(n.first.weight),
    "parameter_data_resized": lambda n: setattr(n.scales[0], "data", torch.ones(1)),
    "parameter_to_meta": lambda n: n.to("meta") and None,
    "parameter_becomes_none": lambda n: n.first.register_parameter("bias", None),
    "parameter_deleted": lambda n: delattr(n.first, "bias"),
    "parameter_frozen": lambda n: n.requires_grad_(False) and None,
    "one_parameter_frozen": lambda n: n.scales[1].requires_grad_(False).shape and None,
    "parameter_added_to_list": lambda n: n.scales.append(nn.Parameter(torch.full((3,), 2.0))) and None,
    "parameters_tied": lambda n: n.scales.__setitem__(1, n.scales[0]),
    "buffer_replaced": lambda n: setattr(n, "offset", torch.full((3,), 2.0)),
    "buffer_of_another_dtype": lambda n: setattr(n, "offset", torch.full((3,), 2)),
    "buffer_requires_grad": lambda n: n.offset.requires_grad_(True).shape and None,
    "buffer_becomes_none": lambda n: setattr(n, "offset", None),
    "buffer_set_to_a_lazy_negation": lambda n: setattr(n, "offset", torch.as_strided(torch.ones(6, dtype=torch.cfloat).conj().imag, (3,), (1,))),
    "class_forward_replaced": lambda n: patch(nn.ReLU, "forward", lambda self, x: x - 1),
    "class_call_replaced": lambda n: patch(nn.ReLU, "__call__", lambda self, x: x - 7),
    "module_call_replaced": lambda n: patch(nn.Module, "__call__", call_relu_otherwise),
    "setattr_of_a_plain_tensor_where_none_was": lambda n: setattr(n, "extra", torch.relu),
    "class_changed": lambda n: setattr(n.layers[1], "__class__", nn.Tanh),
}  # fmt: skip


_module_call = nn.Module.__call__


def call_relu_otherwise(self, *args, **kwargs):
    return args[0] - 7 if isinstance(self, nn.ReLU) else _module_call(self, *args, **kwargs)


@pytest.mark.parametrize("least", [1, 1_000_000], ids=["as_a_table", "as_python_text"])
@pytest.mark.parametrize("name", ROWS)
def test_a_change_of_a_module_is_noticed(name, least, monkeypatch):
    monkeypatch.setattr(guard_table, "MIN_GUARDS", least)

    def world():
        net = Net()
        return net, lambda: ROWS[name](net)

    noticed(world)


class Cell(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("state", torch.randn(3))

    def forward(self, x):
        self.state = self.state * 0.5
        return x + self.state


class Counted(nn.Module):
    """What it computes depends on which of its modules and parameters are the same object."""

    def __init__(self, pick):
        super().__init__()
        self.a, self.b, self.c, self.pick = Cell(1), Cell(2), Cell(3), pick

    def forward(self, x):
        return self.pick(self, x)


IDENTITIES = {
    "parameters": lambda n, x: x + sum(p.sum() for p in n.parameters()), "modules": lambda n, x: x + len(list(n.modules())),
    "set_of_modules": lambda n, x: x + len({n.a, n.b, n.c}), "dict_by_module": lambda n, x: x + len({n.a: 1, n.c: 2, n.b: 3}),
    "set_of_parameters": lambda n, x: x + len({n.a.weight, n.b.weight, n.c.weight}), "written_one_by_one": lambda n, x: n.c(n.b(n.a(x))),
    "dict_looked_up": lambda n, x: x + {n.a: 1}.get(n.b, 2),
}  # fmt: skip
TIES = {
    "modules_tied": lambda n: setattr(n, "b", n.a), "parameters_tied": lambda n: setattr(n.b, "weight", n.a.weight),
    "buffers_tied": lambda n: setattr(n.b, "state", n.a.state), "buffer_becomes_attribute": lambda n: n.b.__dict__.update(state=n.b._buffers.pop("state")),
}  # fmt: skip


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("what", IDENTITIES)
def test_objects_that_become_one_are_noticed(what, tie):
    def world():
        net = Counted(IDENTITIES[what])
        return net, lambda: TIES[tie](net)

    noticed(world)
