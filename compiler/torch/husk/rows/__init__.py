"""Linear layers of 2 to 16 rows on CUDA targets: a step of several sequences, or of several tokens.

cuda/few_rows.py finds them as it finds those of one row. Their kernel (kernel.py) is in Gluon, a
launch of its own for a node of Inductor's (node.py), because its products are those of tensor
cores, and weights should go from memory to the registers that these take. In Triton, products of so
few rows take their operands from shared memory: a chain of such layers with the sizes of Llama 3.2
1B took 2 to 9 times as long as a read of its weights.

On an H200, that chain in bf16 took 1.57 times as long as a read of its weights with 8 rows, and
2.08 with 16 (one row, whose kernels need no tensor cores: 1.28). Each block reads all rows, which
for 16 rows are as many bytes as its weights. Not taken, since they were slower with 8 rows: weights
by asynchronous copies to shared memory (1.62), and one block a multiprocessor that goes through
tiles in turns (1.72).
"""
