"""minipt2: the PyTorch 2 compiler stack, small enough to read and complete enough to use."""
