"""Attention as one step: on CUDA targets kernels of Husk's own, which the rest of this page is
about, on hosts the call of an operator (host_call.py), whose tensors may have any strides.

Decomposed, attention writes the scores (queries x keys) to memory three times and needs three or
more launches, so that the memory of a long prompt grows with the square of its length. Inductor has
no other kernel except `flex_attention`, which a model would have to call itself. The operator
`husk::attention` (operator.py) stands in the program before anything is decomposed. Its kernel is
compiled like every other kernel; sizes and strides that are known are constants of the kernel.

Attention that a model writes out as products and a softmax is recognised by Inductor in half
precision, and in f32 if tf32 is allowed. The operator takes the place of Inductor's replacement,
which torch would decompose again, into more kernels than before.

Decisions of the kernels (kernel.py, hopper_kernel.py):

- The heads that share keys share a tile: the queries of all heads of a group are rows of one
  product, so that each key is read once. Few rows over many keys, as in decoding, are split over
  several blocks, whose results a second kernel joins. The number of parts is a constant of the
  export. It follows from the number of multiprocessors and the largest number of keys, or the
  number of keys in the example if the keys are unbounded.
- A row is two pieces whose widths are powers of two: 80 elements are 64 and 16 instead of 128.
- One loop goes over all keys, with masked blocks as a branch of the loop. Two loops would wait for
  their first loads twice, which is noticeable for short prompts, and need more registers in half
  precision. In f32 they need fewer registers, and loads of a mask are wider without the branch, so
  these cases have two loops.
- Under a causal mask the blocks are ordered by length, the longest first, so that the last blocks
  to run are short. The order covers only as many heads as the cache holds keys and values of.
- A chunk of a prompt sees the keys before it and those up to each token of its own. A mask that
  says this by positions (bounds.py) is a causal mask whose first query has keys `ahead` of it, so
  that the kernel reads no mask and no keys that no query sees, and the Gluon kernel below may be
  taken.
- f32 products are three tf32 products each (`tf32x3`). With `ieee`, ptxas spilled 0.8 KB a thread.
- A row that sees no key is zeros, as in the fused kernels of eager PyTorch. The decomposed form
  yields NaN.
- A tile of keys in pages has rows of one page, and at most as many as a page (64 in language
  models), so that its loads have one base and constant strides, as without pages.
- `tests/gpu/attention.py sweep` exports and times all tiles. The rules of tiles.py come from it.

A step of decoding has one query for each sequence. Then a kernel of its own (step.py,
step_kernel.py) turns query and key by their positions and writes the cache, too, and reads as many
keys as the position says, if the mask is one of positions (bounds.py). That makes one launch of
five. It reads the first keys of the cache before it waits for the kernel of the queries
(cuda/pdl.py). On an H200, eight layers of a decoder with the sizes of Llama 3.2 1B take 1.36 times
as long as a read of their weights with 16 keys and 1.43 times with 300 (tests/gpu/decoder.py). With
larger blocks of the layers around it they took 1.42 times with 16 keys, 1.44 without the early
read, and 1.35 with a kernel in its place that reads nothing behind its wait. Tiles of 32 keys took
1 us less a layer with 16 keys and 2 us more with 200; keys of its own for each of four warps, whose
results are joined at the end, took 2 us more.

Many queries on compute capability 9.0 have a kernel in Gluon. In Triton, the products of a block
overlap with exponentials only of other blocks on the multiprocessor, and from 1024 keys on the
kernel reached 0.80 to 0.90 of the speed of eager's fused kernel. The Gluon kernel has one warp
group that copies and two that compute 64 rows each, so that the products of one group overlap with
the exponentials of the other; on an H200 it reaches 0.93 to 1.2 of eager's speed. As many blocks as
multiprocessors process all tiles, so that the begin and the end of tiles overlap too. Which block
processes which tile is fixed, because a counter in memory would need a launch that sets it to zero.

Copies are `cp.async`, which supports all strides and needs no descriptors. A row stride that is
unknown at the export would need more registers than the copying warps have, so such calls use the
Triton kernel, as do masks and other row sizes. The following variants were measured and not taken:
the product with v of the previous block during the exponentials of the current one (not faster
with two groups, slower if the order is forced), the scores of the next block in advance (spills),
three computing groups (0.73 of eager's speed at 1024 keys), and 64 keys a tile.
"""
