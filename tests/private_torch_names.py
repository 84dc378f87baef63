"""Every private torch name the package uses, and why there is no public one. A new entry needs a reason."""

ALLOWED: dict[str, str] = {
    "torch._ops.OpOverload": "the type of an ATen overload: what an FX node's target is tested for",
    "torch._subclasses.fake_tensor": "FakeTensor and FakeTensorMode: metadata without data (borrowed, DESIGN section 3)",
    "torch.utils._pytree": "flattening nested inputs and outputs as torch does",
    "torch.utils._python_dispatch.TorchDispatchMode": "the mode by which operators below autograd are recorded",
    "torch._C._dispatch_has_kernel_for_dispatch_key": "whether an overload is a composite of others",
    "torch._C._dispatch_get_all_op_names": "every overload there is, for prims.coverage()",
    "torch._C._ExcludeDispatchKeyGuard": "compiled code runs below autograd, view tracking and autocast",
    "torch._C.DispatchKeySet": "names those keys",
    "torch._C.DispatchKey": "names those keys",
    "torch._C._set_grad_enabled": "switches grad mode without a context object: once per training call",
    "torch._C._DisableAutocast": "the backward is traced as it runs: outside autocast",
    "torch._C._current_autograd_node": "which forward operator a backward one stems from (its user frames)",
    "torch.autograd._get_sequence_nr": "the same",
    "torch.amp.autocast_mode._enter_autocast": "autocast regions inside captured graphs",
    "torch.amp.autocast_mode._exit_autocast": "autocast regions inside captured graphs",
    "torch._foreach_copy_": "several write-backs by one call",
    "torch._C._len_torch_function_stack": "guard: code traced without function modes must not run under one",
    "torch._C._len_torch_dispatch_stack": "guard: the same for dispatch modes",
    "torch._C._are_functorch_transforms_active": "guard: the same for vmap and grad",
}
