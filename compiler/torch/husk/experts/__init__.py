"""The choice of experts of a mixture, and products with their stacks of matrices, on GPUs.

    operator.py  the operators, and where a program has them
    choice.py    the choice of experts by a router: the operator, its node and its launch
    kernel.py    the kernels, but that of rows with codes, which is rows/codes_kernel.py
    node.py      Inductor's node for them, and its launch

A step of a language model takes the time in which its weights are read, so only the matrices of
experts that have rows are read.
"""
