"""Linear layers of few rows on CUDA targets: 2 to 16 rows of floats, and 1 to 16 rows of codes: a
step of several sequences, or of several tokens, or of one if its weights have 8 or 4 bits.

cuda/few_rows.py finds them as it finds those of one row: layers of the same rows side by side, a
norm before them, a gate or a residual after them are one launch. Their kernels (kernel.py, and
codes_kernel.py for codes) are launches of their own for a node of Inductor's (node.py). They are in
Gluon, because its products are those of tensor cores, and weights go from memory to the registers
that these take. In Triton, products of
so few rows take their operands from shared memory, and so few elements are asked for at a time that
a chain of such layers took 2 to 9 times as long as a read of its weights.

On an H200, a step of eight sequences, each with a position of its own, took 1.17 times as long as
that of one in a decoder with the sizes of Llama 3.2 1B, and 1.52 times with Inductor's products
(tests/gpu/decoder.py --sequences 1,8 --tiles 16,1). What decides is how many bytes of weights a
block has asked for before it waits for the kernel before it: with a quarter of them it took 1.60
times. Not faster were weights by asynchronous copies to shared memory, and one block for each
multiprocessor that goes through tiles in turns.

With codes, the number of instructions decides as well. A step of one sequence of that decoder with
8 layers took 360 us in bf16 on an H200, 264 with int8 whose codes became floats, and 222 with ints
(IN_DIGITS in codes_kernel.py); with int4 227 and 184. Eight sequences with 4 layers took 236 us in
bf16, 209 with int8 and 215 with int4, and 240 and 242 with the templates of cuda/quantized.py. Not
faster were tiles of 64 rows of weights, blocks of two warps, and one row that each warp reads from
memory in the order of the product.
"""
