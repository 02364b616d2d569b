"""Products with stacks of matrices, one for each expert of a mixture, on GPUs.

    operator.py  the operators, and where a program has them
    kernel.py    the kernels
    node.py      Inductor's node for them, and its launch

A step of a language model takes the time in which its weights are read, so only the matrices of
experts that have rows are read.
"""
