"""The private names of PyTorch, Triton and torchvision that the exporter uses.

Nobody promises them, so a new version of PyTorch may rename or drop each of them. Whoever uses
another one adds it here. `tests/style.sh` compares this list with the text of the exporter, and
`tests/torch/inductor/test_surface.py` compares it with the installed PyTorch. `tests/run.sh
python-surface` prints which of the names a new version lacks.

This module imports nothing of the exporter, and no PyTorch.
"""

from __future__ import annotations

import dataclasses

# The versions of PyTorch that all tests run with, the oldest and the newest one. pyproject.toml
# accepts those between them, too.
TESTED = ("2.11", "2.15")


@dataclasses.dataclass(frozen=True)
class Names:
  """Names of one module, and why the exporter uses them.

  names: functions, classes and values of the module, separated by spaces.
  of: if given, classes of the module, of which `names` are attributes and methods.
  replaced: whether the exporter replaces them while it compiles (replace.py).
  first, last: the first and the last version that has the names, beginning with the oldest one of
    TESTED; `last` is None if the newest one has them.
  """

  names: str
  why: str
  of: str = ""
  replaced: bool = False
  first: str = TESTED[0]
  last: str | None = None

  def paths(self, module: str) -> list[str]:
    """The dotted paths of the names, which are in `module`."""
    owners = [f"{module}.{each}" for each in self.of.split()] or [module]
    return [f"{owner}.{name}" for owner in owners for name in self.names.split()]

  def is_in(self, version: str) -> bool:
    """Whether a version of PyTorch, such as "2.15.0", has the names as far as this row knows."""
    known = _number(version)
    return _number(self.first) <= known and (self.last is None or known <= _number(self.last))


def _number(version: str) -> tuple[int, ...]:
  return tuple(int(part) for part in version.split(".")[:2])


def uses(
  names: str, why: str, of: str = "", first: str = TESTED[0], last: str | None = None
) -> Names:
  """Names that the exporter reads, calls or derives from."""
  return Names(names, why, of, False, first, last)


def replaces(
  names: str, why: str, of: str = "", first: str = TESTED[0], last: str | None = None
) -> Names:
  """Names that the exporter replaces while it compiles; `why` says what their replacement does."""
  return Names(names, why, of, True, first, last)


# Lines of Inductor's wrapper that an artifact does not need: huskc plans the memory, and the checks
# of sizes come from the signature.
_IGNORED = (
  "CommentLine EnterDeviceContextManagerLine ExitDeviceContextManagerLine FreeIfNotReusedLine"
  " FreeLine NullLine"
)
_IGNORED_SINCE_2_12 = (
  "AssertSizeStrideLine EnterDeviceContextManagerWithStreamInfoLine"
  " ExitDeviceContextManagerWithStreamInfoLine"
)
_IGNORED_SINCE_2_14 = "GroupedAssertSizeStrideLine"
_IGNORED_SINCE_2_15 = "AssertAlignmentLine EnterKernelProfileScopeLine ExitKernelProfileScopeLine"
IGNORED_LINES = frozenset(
  [*_IGNORED.split(), *_IGNORED_SINCE_2_12.split(), *_IGNORED_SINCE_2_14.split()]
  + [*_IGNORED_SINCE_2_15.split(), "LineContext"]
)

# Lines that the exporter refuses by their name. They are base classes, come from wrappers of other
# languages, or say what a program of one stream and without Inductor's memory plan does not need.
REFUSED_LINES = frozenset(
  """
  AssertDivByZeroLine ConditionalLine EnterCudaMemPoolContextLine EnterCudaStreamContextLine
  EnterSubgraphLine ExitCudaMemPoolContextLine ExitCudaStreamContextLine ExitSubgraphLine
  MemoryPlanningLine SwitchLine WrapperLine
  """.split()
)

# torch 2.14 moved the module that has the tiles.
_EXACT_TILES = "has tiles for products without tensor cores (products.py)"

SURFACE: dict[str, tuple[Names, ...]] = {
  # How Inductor is entered.
  "torch._inductor": (
    uses("aot_compile", "compiles the graph of an export"),
    uses("list_mode_options", "the options of a mode of torch.compile"),
  ),
  "torch._inductor.compile_fx": (
    uses("compile_fx compile_fx_inner", "compile a graph of Dynamo"),
    replaces("compile_fx_aot", "gets the inner compiler of an export"),
    replaces("_unlift_graph clone_preserve_strides", "no buffer of the model is copied"),
    replaces("_recursive_post_grad_passes", "equal layers become calls (equal_layers.py)"),
    replaces("fake_tensor_prop", "keeps the values that nodes have (repeated.py)"),
  ),
  "torch._inductor.codegen.common": (
    uses(
      "device_codegens init_backend_registration",
      "where the wrapper class of a device is registered",
    ),
    replaces("fx_wrapper_codegen", "the wrapper class becomes Husk's", of="DeviceCodegen"),
    uses("cse", "the kernel that is written now", of="Kernel"),
    uses("store_cache", "the values that it has stored", of="CSE"),
    uses("_cache", "the variables that it has, by what they hold", of="CSE"),
  ),
  "torch._inductor.codegen.wrapper_fxir": (
    uses("FileBackedGraphModule", "a program that does nothing"),
  ),
  "torch._inductor.utils": (
    uses("ValueWithLineMap", "a program that is the text of a module"),
    uses("LineContext", "a line that an artifact does not need"),
    uses(
      "convert_shape_to_inductor convert_shape_to_symint get_free_symbols sympy_product",
      "sizes and their symbols",
    ),
    replaces("is_big_gpu", "small GPUs get templates, too (products.py)"),
    replaces("is_same_tensor", "compares weights without memory (fake_cuda.py)"),
    uses("op_dtype_propagation_rules", "the rules of dtypes by operation (repeated.py)"),
  ),
  "torch._inductor.exc": (
    uses("InvalidCxxCompiler", "the error that becomes a CompileError"),
    uses("LoweringException", "an error that hides the one that it wraps (failures.py)"),
  ),
  "torch._inductor.runtime.cache_dir_utils": (
    uses("cache_dir", "the folder of Inductor's caches"),
  ),
  "torch._inductor.virtualized": (
    uses("ops", "the operations of the kernel that is written now"),
    uses("fake_mode graph kernel set_graph_handler", "what is compiled now", of="V"),
  ),
  # Inductor's options.
  "torch._inductor.config": (
    uses("patch get_config_copy", "how options are set"),
    uses(
      "alignment_asserts allow_buffer_reuse always_keep_tensor_constants compile_threads"
      " comprehensive_padding cpp_wrapper fallback_random fx_graph_cache fx_wrapper"
      " joint_graph_constant_folding memory_planning nan_asserts"
      " optimize_scatter_upon_const_tensor reorder_for_peak_memory scalar_asserts size_asserts",
      "options of every export",
    ),
    uses(
      "cpp.dynamic_threads cpp.simdlen cpp.threads cpp.vec_isa_ok",
      "options of the kernels of hosts",
    ),
    uses(
      "autotune_fallback_to_aten autotune_local_cache autotune_remote_cache benchmark_fusion"
      " combo_kernels coordinate_descent_tuning deterministic epilogue_fusion max_autotune"
      " max_autotune_conv_backends max_autotune_gemm max_autotune_gemm_backends"
      " max_autotune_pointwise shape_padding triton.autotune_at_compile_time"
      " triton.cooperative_reductions triton.cudagraphs triton.enable_pdl"
      " triton.enable_persistent_tma_matmul triton.mix_order_reduction triton.multi_kernel"
      " triton.native_matmul triton.num_decompose_k_splits triton.store_cubin"
      " triton.unique_user_kernel_names use_static_cuda_launcher"
      " eager_numerics.division_rounding",
      "options of the kernels of GPUs",
    ),
    uses(
      "benchmark_epilogue_fusion",
      "an option of the kernels of GPUs that torch 2.15 calls benchmark_template_fusion",
    ),
    uses(
      "_micro_pipeline_tp _collective.auto_select",
      "make operators of symmetric memory (jit/backend.py)",
    ),
    uses("triton.enable_host_side_tma", "an option of the kernels of GPUs", first="2.14"),
  ),
  # Inductor's wrapper and its lines.
  "torch._inductor.codegen.wrapper": (
    uses(
      "lines computed_sizes writeline push_codegened_graph pop_codegened_graph"
      " run_wrapper_ir_passes",
      "what Husk's wrapper uses of its base class",
      of="PythonWrapperCodegen",
    ),
    uses(
      "create supports_caching codegen_inputs _generate make_zero_buffer codegen_while_loop"
      " codegen_invoke_subgraph generate_tma_descriptor codegen_dynamic_select_index"
      " codegen_dynamic_slice_size codegen_device_copy"
      " generate_fallback_kernel_with_runtime_lookup",
      "the methods that Husk's wrapper overrides",
      of="PythonWrapperCodegen",
    ),
    uses("codegen_conditional", "writes a cond", of="PythonWrapperCodegen", last="2.13"),
    uses("codegen_switch", "writes a switch or a cond", of="PythonWrapperCodegen", first="2.14"),
    uses(
      "codegen_deferred_alignment_copies register_alignment_check_inputs",
      "do nothing (torch_compat.optional_methods)",
      of="PythonWrapperCodegen",
      first="2.12",
    ),
    uses(
      "sync_d2h_copy",
      "does nothing (torch_compat.optional_methods)",
      of="PythonWrapperCodegen",
      first="2.13",
    ),
    uses("node comm_buffer", "a buffer", of="AllocateLine"),
    uses("node reused_as", "a buffer in the place of another", of="ReuseLine"),
    uses("reused_as layout", "a buffer that is a view", of="ReinterpretLine"),
    uses("kernel_name kernel_body metadata", "the text of a kernel", of="KernelDefinitionLine"),
    uses("kernel_name call_args raw_args", "a launch", of="KernelCallLine"),
    uses(
      "node",
      "calls of operators",
      of="ExternKernelOutLine ExternKernelAllocLine ScatterFallbackLine IndexPutFallbackLine",
    ),
    uses("node", "a call of an operator", of="ExternKernelMultiOutLine", first="2.12"),
    uses("indices", "the indices of index_put", of="IndexPutFallbackLine"),
    uses("result_name arg_name", "one of several results", of="MultiOutputLine"),
    uses("arg", "a number that a launch gets", of="SymbolicCallArgLine"),
    uses("node", "a number that is read from a tensor", of="DynamicScalarLine"),
    uses(
      "unbacked_bindings",
      "the numbers that an operator decides",
      of="UnbackedSymbolDefsLine",
    ),
    uses(_IGNORED, "lines that an artifact does not need"),
    uses(_IGNORED_SINCE_2_12, "lines that an artifact does not need", first="2.12"),
    uses(_IGNORED_SINCE_2_14, "a line that an artifact does not need", first="2.14"),
    uses(_IGNORED_SINCE_2_15, "lines that an artifact does not need", first="2.15"),
  ),
  # DTensors, and process groups that do not communicate (husk.parallel).
  "torch._export.wrappers": (
    replaces(
      "_maybe_find_pre_dispatch_tf_mode_for_export",
      "keeps the constructor of DTensors out of programs (program/dtensors.py)",
    ),
  ),
  "torch.distributed._functional_collectives": (
    uses("all_reduce", "adds what ranks compute with their experts (parallel/experts.py)"),
    replaces(
      "_maybe_view_chunk_cat",
      "joins parts without a question about sizes (program/dtensors.py)",
    ),
  ),
  "torch.distributed.tensor._ops.utils": (
    replaces(
      "is_tensor_shardable",
      "chooses how to divide a result without a question about sizes (program/dtensors.py)",
    ),
  ),
  "torch.distributed.distributed_c10d": (
    uses("_resolve_process_group", "the ranks of a group that an operator names"),
  ),
  "torch.distributed._symmetric_memory": (
    replaces(
      "empty rendezvous", "memory that ranks share is ordinary memory (symmetric_memory.py)"
    ),
  ),
  "torch.library": (
    uses("_scoped_library", "traces operators of symmetric memory (symmetric_memory.py)"),
  ),
  "torch.distributed.tensor": (uses("_spec", "how a tensor is divided", of="DTensor"),),
  "torch.distributed.tensor.placement_types": (
    replaces(
      "_shard_tensor",
      "takes the shard of a rank without communication (program/dtensors.py)",
      of="Shard _StridedShard",
    ),
  ),
  "torch.testing._internal.distributed.fake_pg": (
    uses("FakeStore", "a process group that does not communicate"),
  ),
  # Nodes of Inductor's graph, and sizes.
  "torch._inductor.ir": (
    uses("ChoiceCaller", "a template that is written later (deferred.py)"),
    uses("data", "boxes around a node", of="TensorBox StorageBox MutableBox"),
    uses("create", "the result of a lowering", of="TensorBox"),
    uses("data layout", "another view of a buffer", of="ReinterpretView"),
    uses("BaseView Buffer ComputedBuffer", "which weights are rounded once"),
    uses(
      "get_name get_size get_stride get_dtype get_device get_layout",
      "a tensor of the program",
      of="Buffer",
    ),
    uses("size stride dtype offset", "how a tensor lies in memory", of="Layout"),
    uses("FixedLayout", "the layout of a result of Husk's nodes"),
    uses("MutationOutput NoneLayout", "what a node of Husk's writes (attention/step.py)"),
    replaces(
      "constant_to_device",
      "says where the copy of a constant lies (one_device.py)",
      of="ConstantBuffer",
    ),
    uses("contiguous_strides", "the strides of a dense tensor", of="FlexibleLayout"),
    replaces(
      "realize_into",
      "computes a value that reads its target as a whole (updates.from_whole_values)",
      of="MutationLayoutSHOULDREMOVE",
    ),
    replaces("allow_indexing", "lets reads be looked at (updates.py)", of="FlexibleLayout"),
    uses("MultiOutputLayout NoneLayout", "the layouts of nodes with many results and with none"),
    uses(
      "ExternKernel ExternKernelAlloc ExternKernelOut MultiOutput",
      "calls of operators, and the base classes of Husk's own nodes",
    ),
    uses(
      "inputs constant_args kwargs python_kernel_name op_overload output_view unwrap_storage",
      "what is read of the call of an operator",
      of="ExternKernel",
    ),
    uses(
      "copy_input realize_input require_channels_last require_contiguous require_exact_strides"
      " require_stride_order",
      "how a lowering asks for the strides that an operator needs",
      of="ExternKernel",
    ),
    uses("unflatten_args", "the call of an operator by its schema", of="FallbackKernel"),
    replaces("_dynamic_reshape_indexer", "is right for all sizes (patches.py)", of="View"),
    replaces("process_kernel", "forgets sizes of earlier calls (patches.py)", of="ExternKernel"),
    replaces(
      "codegen",
      "nodes that would write text, and become lines of Husk (patches.py)",
      of="DeviceCopy InplaceBernoulliFallback InplaceCopyFallback MemoryCheckKernel"
      " ResizeStorageBytes",
    ),
    replaces(
      "get_free_symbol_uses",
      "forgets the symbols of the size of the whole (patches.py)",
      of="DynamicSelectStorageOffset DynamicSliceSize",
    ),
    uses(
      "unbacked_offset_symbol index base_offset base_dim_stride size clamp",
      "where a part begins whose index is a number of the data",
      of="DynamicSelectStorageOffset",
    ),
    uses(
      "unbacked_size_symbol start end step size",
      "the size of a part whose ends are numbers of the data",
      of="DynamicSliceSize",
    ),
    uses("sym keypath", "a number that is read from a tensor", of="DynamicScalar"),
    uses("scalar msg", "a condition on numbers", of="AssertScalar"),
    uses("NoneAsConstantBuffer ShapeAsConstantBuffer", "results that are no tensors"),
    uses("tensor", "a tensor descriptor of a model's kernel", of="TMADescriptorStable"),
    uses(
      "predicate operands true_subgraph false_subgraph",
      "a cond",
      of="Conditional",
      last="2.13",
    ),
    uses("selector operands branches", "a switch or a cond", of="Switch", first="2.14"),
    uses(
      "carried_inputs additional_inputs cond_subgraph body_subgraph",
      "a while_loop",
      of="WhileLoop",
    ),
    uses("subgraph", "a call of a subgraph", of="InvokeSubgraph"),
    uses("create", "made by lowerings of Husk", of="GenericView Pointwise"),
    replaces("create", "an argmax gets one reduced dimension (patches.py)", of="Reduction"),
    replaces(
      "maybe_free_symbols maybe_free_unbacked_symbols",
      "find the symbols of a condition, too (patches.py)",
    ),
    uses(
      "as_storage_and_layout get_stride_order is_storage_and_layout",
      "how a tensor lies in memory",
    ),
  ),
  "torch._inductor.graph": (
    uses(
      "add_tensor_constant constants current_node fake_mode fx_wrapper get_buffer"
      " graph_input_names graph_inputs graph_outputs inputs_to_check module no_fuse_buffer_names"
      " mutated_buffers operations register_buffer register_operation removed_buffers sizevars"
      " try_get_buffer unaligned_buffers"
      " codegen_subgraph get_allocation_size",
      "the graph that is compiled",
      of="GraphLowering",
    ),
    uses("SubgraphLowering", "the graph of a branch or of a loop"),
    replaces(
      "constant_name",
      "copies no constant to a GPU that is not there (fake_cuda.py)",
      of="GraphLowering",
    ),
    replaces(
      "decide_layout_opt",
      "keeps tensors in the channels-last format (torch_compat.channels_last)",
      of="GraphLowering",
    ),
    replaces("is_mkldnn_conv", "keeps tensors in it around Husk's convolutions"),
  ),
  "torch._inductor.sizevars": (
    replaces("_join_dimensions_cached", "joins without a search for patterns (torch_compat.py)"),
    uses("join_dimensions", "joins what is left then"),
    replaces(
      "check_equals",
      "asks whether sizes are equal for all sizes (patches.py)",
      of="SizeVarAllocator",
    ),
    uses(
      "shape_env replacements evaluate_expr statically_known_equals statically_known_leq"
      " statically_known_multiple_of remove_precomputed_replacements",
      "what is known of sizes",
      of="SizeVarAllocator",
    ),
    uses("optimization_hint", "the size in the example", of="SizeVarAllocator"),
    replaces(
      "evaluate_min evaluate_max",
      "the smaller and the larger size are expressions (varying.py)",
      of="SizeVarAllocator",
    ),
    replaces(
      "_simplify_with_ranges _simplify_loops_impl",
      "keeps what it has found (simplified_indices.kept_simplifications)",
      of="SizeVarAllocator",
    ),
  ),
  # Lowerings, decompositions and passes.
  "torch._inductor.lowering": (
    replaces("lowerings", "the lowerings by operator, to which Husk's are added"),
    uses("fallbacks make_fallback fallback_handler", "operators that are called"),
    uses("clone expand mul mutate_to sigmoid slice_", "called by lowerings of Husk"),
    uses("_compute_slice_index", "asks for the bounds of a slice (assumed.py)", first="2.14"),
    replaces("pooling_size", "counts the windows of all sizes (varying.py)"),
    replaces(
      "_fractional_pooling_offsets",
      "reads random numbers in the order of eager mode (patches.py)",
    ),
    replaces("_maybe_layout_constraints", "how the arguments of operators lie (cusolver.py)"),
  ),
  "torch._decomp.decompositions_for_rng": (
    replaces("extra_random_decomps", "the decompositions of operators that draw, too"),
  ),
  "torch._inductor.decomposition": (
    replaces("decompositions", "the decompositions by operator, to which Husk's are added"),
    uses("cache_clear", "a copy of both", of="fast_random_decomps"),
  ),
  "torch._inductor.inductor_prims": (uses("seeds", "the operator that makes seeds"),),
  "torch._inductor.fx_passes.joint_graph": (
    replaces("lazy_init", "traces the patterns on the CPU (fake_cuda.py)"),
    uses("patterns", "a pattern that fails (patterns.py)"),
  ),
  "torch._inductor.pattern_matcher": (
    replaces("extra_check", "whether a pattern is replaced (patterns.py)", of="PatternEntry"),
    uses("handler", "what replaces it", of="GraphPatternEntry"),
    replaces("replace_by_example", "keeps the arguments of a loop (loop_sizes.py)", of="Match"),
    uses("patterns", "the patterns of a pass", of="PatternMatcherPass"),
  ),
  "torch._inductor.fx_passes.misc_patterns": (
    replaces("register_replacement", "leaves out a pattern that fails (patterns.py)"),
  ),
  "torch._inductor.fx_passes.post_grad": (
    uses("noop_registry", "the operators that copy"),
    uses("pass_patterns pointless_cumsum_replacement", "a pattern that fails (patterns.py)"),
    replaces("remove_noop_ops", "keeps copies of what is written later (torch_compat.kept_copies)"),
    replaces(
      "decompose_map_to_while_loop decompose_scan_to_while_loop",
      "count on the device of the graph (one_device.py)",
    ),
    replaces("resolve_shape_to_proxy", "knows the sizes of tensors (loop_sizes.py)"),
  ),
  "torch._inductor.fx_passes.fuse_attention": (
    replaces("_scaled_dot_product_attention", "what a recognised attention becomes (patches.py)"),
  ),
  "torch._inductor.index_propagation": (
    uses("TypedExpr", "a number that is not known (patches.py)"),
    replaces(
      "__init__ indirect_indexing",
      "checks that an indexed dimension is not empty (empty.py)",
      of="IndexPropagation",
    ),
    uses("fallback", "writes the check", of="IndexPropagation"),
  ),
  # How Inductor writes kernels.
  "torch._inductor.ops_handler": (
    uses(
      "add and_ bitwise_and bitwise_right_shift bitwise_xor constant eq ge index_expr"
      " indirect_indexing inline_asm_elementwise lt masked minimum mul store sub to_dtype truediv"
      " where",
      "the operations of a kernel",
      of="OpsHandler",
    ),
  ),
  "torch._inductor.dtype_propagation": (
    replaces(
      "__init__",
      "sets the rules of dtypes once (repeated.py)",
      of="DtypePropagationOpsHandler",
    ),
  ),
  "torch._inductor.dependencies": (
    uses("MemoryDep StarDep WeakDep extract_read_writes", "what a node reads"),
  ),
  "torch._inductor.scheduler": (
    uses("ForeachKernelSchedulerNode", "the kernel of a list of tensors"),
    replaces(
      "fusable_weak_dep",
      "sees every read of a buffer that is written again (patches.py)",
      of="Scheduler",
    ),
    uses("mutation_real_name", "the buffer that a write goes to", of="Scheduler"),
    replaces(
      "recompute_size_and_body",
      "keeps what it must run after (patches.py)",
      of="SchedulerNode",
    ),
    uses(
      "read_writes mutation_renames set_read_writes _body",
      "what a node reads and writes",
      of="SchedulerNode",
    ),
  ),
  "torch._inductor.tiling_utils": (
    replaces("get_pw_red_splits", "recognizes a number of elements in any form (patches.py)"),
  ),
  "torch._inductor.codegen.simd": (
    uses("range_tree_nodes", "the loops of the kernel that is written now", of="SIMDKernel"),
  ),
  "torch._inductor.codegen.triton": (
    replaces("should_unwrap_unspec_arg", "kernels mask what they read back (patches.py)"),
    replaces(
      "get_block_shape",
      "knows rows of scans that several blocks share (patches.py)",
      of="TritonSymbols",
    ),
    replaces("load", "indices without symbols are numbers (patches.py)", of="TritonKernel"),
    replaces(
      "_print_IntTrueDiv _helper_sqrt",
      "quotients and roots in float64 (float64.py)",
      of="TritonPrinter",
    ),
    uses("_print", "writes an operand of these", of="TritonPrinter"),
    replaces("index_expr", "knows the dtype of these (float64.py)", of="TritonKernelOverrides"),
  ),
  "torch._inductor.bounds": (
    replaces(
      "truncdiv", "the range of a quotient is one of ints (patches.py)", of="ValueRangeAnalysis"
    ),
  ),
  "torch._inductor.codegen.cpp": (
    replaces("CeilDiv", "remembers quotients (host_loops.host_codegen)"),
    replaces(
      "simplify_index_in_vec_range stride_at",
      "know polynomials, and remember the rest (host_loops.host_codegen)",
      last="2.12",
    ),
    replaces(
      "ready_to_flush",
      "each loop nest is a function (host_loops.host_codegen)",
      of="CppScheduling",
    ),
    replaces(
      "try_loop_split",
      "divides loops into whole parts only (host_loops.py)",
      of="CppScheduling",
    ),
    replaces(
      "codegen_loops_impl", "marks each loop nest (host_loops.host_codegen)", of="CppKernel"
    ),
    uses("call_ranges rename_indexing", "the sizes of a loop nest", of="CppKernel"),
    replaces("check_bounds", "checks an index before its load (host_loops.py)", of="CppKernel"),
    replaces(
      "aggregate_reduction_buffers",
      "stores no lane behind the end (host_loops.host_codegen)",
      of="CppKernelProxy",
    ),
    replaces(
      "_get_vec_load_line",
      "reads no lane behind the end (host_loops.host_codegen)",
      of="CppVecKernel",
    ),
    replaces(
      "reduction_combine_vec",
      "counts in the inner loop of a tile (host_loops.host_codegen)",
      of="CppVecKernel",
    ),
    uses("transform_indexing", "the index in a tile (host_loops.py)", of="CppTile2DKernel"),
    uses(
      "_adjust_argreduce_index",
      "counts in the inner loop of a tile itself",
      of="CppTile2DKernel",
      first="2.15",
    ),
    uses("_get_mask_type tail_size num_elems", "the lanes of a load", of="CppVecKernel"),
    replaces("masked", "leaves numbers what they are (host_loops.py)", of="CppVecOverrides"),
    replaces(
      "isnan isinf signbit mul floordiv truncdiv",
      "compute all lanes of a vector at once (host_loops.py)",
      of="CppVecOverrides",
    ),
  ),
  "torch._inductor.codegen.cpp_utils": (uses("cexpr_index", "the text of an expression in C++"),),
  "torch._inductor.cpu_vec_isa": (
    replaces(
      "valid_vec_isa_list",
      "the vectors are those of the target (host_loops.host_codegen)",
    ),
    replaces("__bool__", "the vectors are there (host_loops.host_codegen)", of="VecISA"),
    uses("VecAVX2 VecAVX512 VecNEON", "the vectors of the targets"),
  ),
  # Kernels of GPUs.
  "torch._inductor.choices": (
    replaces("get_conv_configs", "gets more tiles (products.py)", of="InductorChoices"),
    replaces(
      "get_template_configs", "gets a template of Husk (tensor_maps.py)", of="InductorChoices"
    ),
  ),
  "torch._inductor.template_heuristics.triton": (
    replaces("preprocess_mm_configs", _EXACT_TILES, of="BaseConfigHeuristic"),
  ),
  "torch._inductor.heuristics.template.triton": (
    replaces("preprocess_mm_configs", _EXACT_TILES, of="BaseConfigHeuristic", first="2.14"),
  ),
  "torch._inductor.kernel.conv": (
    uses("conv2d_template conv3d_template", "multiply in tf32 as torch is set (products.py)"),
  ),
  "torch._inductor.kernel.mm": (uses("", "a module with a cache of answers about the device"),),
  "torch._inductor.kernel.mm_common": (
    uses("addmm_epilogue persistent_mm_grid", "another template of products (tensor_maps.py)"),
  ),
  "torch._inductor.kernel.mm_plus_mm": (
    replaces("tuned_mm_plus_mm", "two products, where no template fits (products.py)"),
  ),
  "torch._inductor.select_algorithm": (
    replaces("maybe_append_choice", "the templates of Husk", of="TritonTemplate"),
    uses(
      "autotune_select_algorithm get_algorithm_selector_cache ExternKernelCaller"
      " NoValidChoicesError SymbolicGridFn",
      "how a choice is made among templates and libraries",
    ),
    replaces(
      "pick_deterministic_choice",
      "a rule picks the template (products.py)",
      of="AlgorithmSelectorCache",
    ),
    replaces(
      "__call__",
      "its tables of times go to a log (products.py)",
      of="AlgorithmSelectorCache",
    ),
    uses(
      "name description input_nodes layout log_info bmreq precompile",
      "a choice",
      of="TritonTemplateCaller",
    ),
  ),
  "torch._inductor.runtime.benchmarking": (
    uses("benchmarker", "measures kernels"),
    replaces(
      "benchmark_gpu",
      "measures as records are measured (products.py)",
      of="InductorBenchmarker TritonBenchmarker",
    ),
  ),
  "torch._inductor.runtime.hints": (
    uses("create", "the properties of the GPU", of="DeviceProperties"),
  ),
  "torch._inductor.runtime.triton_helpers": (
    replaces("set_driver_to_gpu", "asks no driver (fake_cuda.py)"),
  ),
  "torch._inductor.runtime.triton_heuristics": (
    replaces("_make_launchers", "loads no kernel (fake_cuda.py)", of="CachingAutotuner"),
    uses(
      "configs fn inductor_meta triton_meta size_hints heuristic_type custom_kernel"
      " coordesc_tuner bench _create_compile_options _precompile_config",
      "the kernel and its configurations",
      of="CachingAutotuner",
    ),
    replaces("ASTSource", "compiles Gluon, too (fake_cuda.py)"),
    uses("generate prefix x_grid y_grid z_grid ceildiv", "the grid of a launch", of="GridExpr"),
    uses("config_to_dict user_autotune", "configurations of kernels"),
  ),
  "torch._inductor.codegen.cuda.cuda_env": (
    replaces("get_cuda_arch get_cuda_version", "answer for the target (fake_cuda.py)"),
  ),
  "torch.utils._triton": (
    replaces(
      "has_triton_tensor_descriptor_host_tma",
      "torch sees descriptors without a GPU (descriptors.py)",
    ),
  ),
  "torch._inductor.analyze_preserves_zero_mask": (
    replaces("floordiv mod remainder", "divide zeros (patches.py)", of="PreservesZeros"),
    uses("construct_symbol", "a number that is not known"),
  ),
  "torch._higher_order_ops.associative_scan": (
    replaces("generic_associative_scan", "scans any length (scans.py)"),
  ),
  "torch._higher_order_ops.triton_kernel_wrap": (
    replaces("call_HOP", "descriptors become tensors (descriptors.py)", of="TracingTritonHOPifier"),
    replaces("triton_kernel_wrapper_mutation", "gets the sizes of the blocks (descriptors.py)"),
    uses("create_tma_stable_metadata kernel_side_table", "the kernels of a model"),
  ),
  "torch._dynamo.device_interface": (
    replaces(
      "is_available is_bf16_supported get_device_properties current_device device_count",
      "answers for the target (fake_cuda.py)",
      of="CudaInterface",
    ),
    replaces(
      "caching_worker_current_devices caching_worker_device_properties",
      "know the target alone (fake_cuda.py)",
    ),
  ),
  "torch.cuda": (
    replaces(
      "get_device_properties current_device device_count get_device_capability get_device_name",
      "public functions that answer for the target (fake_cuda.py)",
    ),
    uses("_sleep", "keeps the GPU busy while launches are queued (tuning.py)"),
  ),
  "torch._C": (
    replaces("_select_batch_norm_backend", "asks no cuDNN (fake_cuda.py)"),
    uses("_BatchNormBackend", "its answer"),
    uses("_disabled_torch_function_impl", "which subclasses have no function of their own"),
    uses(
      "_cuda_getCurrentRawStream _cuda_isCurrentStreamCapturing",
      "the stream of a run (jit/module.py)",
    ),
    uses("Autograd CompositeImplicitAutograd", "how an operator is implemented", of="DispatchKey"),
    uses(
      "_dispatch_has_kernel _dispatch_has_kernel_for_dispatch_key",
      "whether an operator has such an implementation",
    ),
  ),
  # Dynamo, tracing and fake tensors.
  "torch._dynamo.repro.after_aot": (
    replaces("save_graph_repro", "writes no program that nobody keeps (torch_compat.untraced)"),
  ),
  "torch._logging._internal": (uses("trace_log", "whether traces are kept"),),
  "torch._export.non_strict_utils": (
    replaces("_override", "other calls (traced_calls.py)", of="_NonStrictTorchFunctionHandler"),
  ),
  "torch._export.utils": (
    replaces(
      "_materialize_cpp_cia_ops",
      "looks composite operators up once for a program (exported_programs.functional)",
    ),
  ),
  "torch._dynamo.convert_frame": (uses("compile_lock", "the lock that torch.compile takes"),),
  "torch._dynamo.exc": (
    uses("RestartAnalysis SkipFrame", "what tells Dynamo what to do next is no failure"),
  ),
  "torch._dynamo.eval_frame": (
    uses("_debug_get_cache_entry_list", "the codes of a frame"),
    uses("_orig_mod", "what torch.compile has made of a module", of="OptimizedModule"),
    uses(
      "_torchdynamo_orig_callable",
      "what torch.compile has made of a function",
      of="_TorchDynamoContext",
    ),
  ),
  "torch._dynamo.external_utils": (uses("wrap_inline", "compiles a function of torch's own"),),
  "torch._dynamo.symbolic_convert": (
    uses("current_tx f_code f_locals", "the frame that is traced", of="InstructionTranslator"),
  ),
  "torch._guards": (
    uses("detect_fake_mode", "the mode of fake tensors"),
    uses("try_get fake_mode", "what is known of the graph that is compiled", of="TracingContext"),
  ),
  "torch._functorch.predispatch": (uses("", "the module of the operators of torch.vmap"),),
  "torch._decomp": (
    replaces(
      "decomposition_table",
      "the decompositions of a traced program (shape_functions.right_dtypes)",
    ),
  ),
  "torch._decomp.decompositions": (
    replaces("one_layer_lstm", "the shapes of the last states (shape_functions.right_dtypes)"),
  ),
  "torch._dispatch.python": (uses("enable_python_dispatcher", "traces with decompositions"),),
  "torch._higher_order_ops.flex_attention": (uses("math_attention", "computes all scores"),),
  "torch._higher_order_ops.while_loop": (uses("while_loop_op", "a loop of a decomposition"),),
  "torch._meta_registrations": (
    uses("linalg_solve_is_vector_rhs", "whether b is a vector"),
    replaces("min", "takes the smaller of all sizes (shape_functions.smaller_sizes)"),
    replaces("pooling_output_shape_pad_lr", "asks nothing (shape_functions.windows_of_all_sizes)"),
  ),
  "torch._subclasses": (uses("cache_clear", "forgets shapes", of="FakeTensorMode"),),
  "torch._subclasses.fake_tensor": (
    uses("allow_scalar_outputs", "numbers that loops read from tensors", of="FakeTensorMode"),
    uses("FakeTensor FakeTensorMode in_kernel_invocation_manager", "fake tensors"),
    replaces("epoch", "forgets sizes of earlier calls (patches.py)", of="FakeTensorMode"),
    replaces("run_fallback_kernel", "runs no operator on a GPU that is not there (fake_cuda.py)"),
  ),
  "torch._subclasses.fake_impls": (
    replaces(
      "_unique op_implementations_dict",
      "the shapes of results (shape_functions.right_dtypes, varying.views)",
    ),
    uses("_view_unbacked_meta", "a view of any size (varying.py)"),
    replaces("run_fallback_kernel", "runs no operator on a GPU that is not there (fake_cuda.py)"),
  ),
  # torch.export, torch.fx and expressions of sizes.
  "torch.export": (
    uses(
      "_update _state_dict _constants _example_inputs _guards_code",
      "parts of a program without public names",
      of="ExportedProgram",
    ),
  ),
  "torch.export._trace": (
    replaces("sys", "the graph that it prints when it fails goes to a log (capture.py)"),
    uses("_export", "traces the operators of DTensors (program/dtensors.py)"),
  ),
  "torch.export.dynamic_shapes": (
    uses(
      "ShapesCollection _combine_args _tree_map_with_path",
      "the Dims of the sizes of arguments (program/tracing.py)",
    ),
  ),
  "torch.export.graph_signature": (
    uses(
      "ConstantArgument SymBoolArgument SymFloatArgument SymIntArgument TensorArgument",
      "the kinds of inputs and outputs",
    ),
  ),
  "torch.fx": (uses("_in_spec _out_spec", "the trees of inputs and outputs", of="GraphModule"),),
  "torch.fx._lazy_graph_module": (uses("_make_graph_module", "a copy of a module"),),
  "torch.fx.experimental.proxy_tensor": (
    uses("make_fx", "traces a part of a graph"),
    replaces("fetch_object_proxy", "finds what autograd has kept (gradients.py)"),
    replaces("proxy_call", "takes operators with gradients apart (gradients.py)"),
  ),
  "torch.fx.experimental._config": (
    uses("backed_size_oblivious patch", "sizes from 0 on while a model is traced (tracing.py)"),
  ),
  "torch.fx.experimental.symbolic_shapes": (
    uses("statically_known_true", "asks without a condition"),
    replaces("uninteresting_files", "leaves out files of Husk (tracing.py)"),
    uses("cast_symbool_to_symint_guardless", "the number of a boolean (checks.py)"),
    uses("GuardOnDataDependentSymNode", "the data decides a branch of a model (tracing.py)"),
    uses("free_unbacked_symbols", "whether the data decides a size (host_complex.py)"),
    uses("CallMethodKey ConvertIntKey DivideByKey", "the path to a number in a result"),
    uses(
      "axioms deferred_runtime_asserts divisible fake_tensor_cache frozen guards"
      " num_deferred_runtime_asserts replace replacements replacements_slocs suppress_guards"
      " symbol_guard_counter var_to_range var_to_range_sloc var_to_sources bound_sympy"
      " _maybe_evaluate_static _update_version_counter _version_counter backed_var_to_val"
      " size_like",
      "what is known of sizes (assumed.py, tracing.py)",
      of="ShapeEnv",
    ),
    replaces("evaluate_expr", "sees each question about a size (assumed.py)", of="ShapeEnv"),
    replaces("_fast_expand", "keeps what it has found (repeated_sizes.py)"),
    replaces(
      "_check_frozen",
      "collects the conditions of frozen shapes (torch_compat.ignored_guards)",
      of="ShapeEnv",
    ),
  ),
  "torch.utils._pytree": (
    uses("GetAttrKey MappingKey SequenceKey", "the path to a value"),
    uses(
      "SUPPORTED_NODES _deregister_pytree_node _private_register_pytree_node",
      "objects that torch takes apart while an export runs (program/objects.py)",
    ),
    uses(
      "TreeSpec keystr tree_flatten tree_flatten_with_path tree_leaves tree_map tree_map_only"
      " tree_unflatten",
      "nests of arguments and results",
    ),
  ),
  "torch.fx.experimental.sym_node": (
    uses("_expr expr", "the expression before it is simplified", of="SymNode"),
  ),
  "torch.utils._sympy.functions": (
    uses("CeilDiv FloorDiv IntTrueDiv Max Min Mod ModularIndexing Where", "expressions of sizes"),
    replaces("eval", "keeps what it has found (repeated_sizes.py)", of="FloorDiv ModularIndexing"),
    uses(
      "CeilToInt CleanDiv FloorToInt OpaqueUnaryFn_log2 OpaqueUnaryFn_sqrt PowByNatural PythonMod"
      " RoundDecimal ToFloat TruncToInt",
      "expressions of guards and grids (inductor/python_text.py)",
    ),
    uses(
      "BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor FloatPow FloatTrueDiv"
      " Identity LShift RShift RoundToInt TruncToFloat",
      "expressions that become those of a .hir (hir/expressions.py)",
    ),
  ),
  "torch.utils._sympy.solve": (uses("try_solve", "solves an equation of sizes"),),
  "torch.utils._sympy.symbol": (
    uses("free_symbol_is_type symbol_is_type", "the kind of a symbol"),
    uses("TMP UNBACKED_FLOAT UNBACKED_INT", "the kinds", of="SymT"),
  ),
  "torch.utils._sympy.value_ranges": (
    uses("ValueRanges SymPyValueRangeAnalysis bound_sympy", "the range of an expression"),
    replaces("sympy_interp", "keeps the ranges of expressions (repeated_sizes.py)"),
    uses("_bool_to_int", "the numbers of a boolean", of="SymPyValueRangeAnalysis"),
    replaces("eq", "compares booleans (patches.py)", of="SymPyValueRangeAnalysis"),
  ),
  "torch.utils._sympy.interp": (
    replaces("sympy_interp", "keeps the ranges of parts of expressions (repeated_sizes.py)"),
  ),
  "torch.utils._sympy.value_ranges.ValueRanges": (
    uses("unknown unknown_int", "the range of an expression that torch cannot bound"),
    uses("wrap", "the range of a number or of a boolean (patches.py)"),
    replaces("tighten", "gives a range itself for an equal one (repeated.py)"),
  ),
  # Tensors, operators and nests.
  "torch": (
    uses("_check", "a condition that the operators of decompositions have"),
    uses(
      "_base _is_view _version _make_wrapper_subclass",
      "views, and writes of a tensor",
      of="Tensor",
    ),
    uses("_cdata", "which tensors share memory", of="UntypedStorage"),
    replaces(
      "__round__ __divmod__ __rdivmod__ __invert__ __xor__ __rxor__",
      "computes what Python does of an int (python_numbers.py)",
      of="SymInt",
    ),
    replaces("__round__", "refuses digits of a fraction (python_numbers.py)", of="SymFloat"),
    replaces(
      "linspace logspace bartlett_window blackman_window kaiser_window",
      "take numbers of elements that vary (element_counts.py)",
    ),
    replaces("max_pool1d", "takes any length (traced_calls.py)"),
  ),
  "torch.fft": (
    replaces("fftfreq rfftfreq", "take numbers of elements that vary (element_counts.py)"),
  ),
  "torch._library.fake_impl": (
    replaces("create_unbacked_symint", "sizes from 0 on (shape_functions)", of="FakeImplCtx"),
  ),
  "torch._ops": (
    uses("HigherOrderOperator", "an operator with functions as arguments"),
    uses("_schema _op_dk", "an operator", of="OpOverload"),
    uses("_dispatch_cache", "what an operator remembers of its kernels", of="OpOverload"),
  ),
  "torch.amp.autocast_mode": (uses("_enter_autocast _exit_autocast", "mark a region of autocast"),),
  "torch.nn": (
    uses(
      "_buffers _modules _parameters",
      "parameters, buffers and inner modules, without those of inner modules",
      of="Module",
    ),
    uses("_compiled_call_impl", "what Module.compile has made of a module", of="Module"),
  ),
  "torch.nn.modules.module": (
    replaces(
      "_global_buffer_registration_hooks",
      "has what a failed export leaves (torch_compat.hooks_of_buffers_kept)",
    ),
  ),
  "torch.utils._mode_utils": (uses("no_dispatch", "runs an operator on real tensors"),),
  "torch.utils._ordered_set": (uses("OrderedSet", "the sets of Inductor"),),
  "torch.utils._python_dispatch": (
    uses(
      "TorchDispatchMode _disable_current_modes is_traceable_wrapper_subclass",
      "sees each operator that runs",
    ),
  ),
  "torch.ops._c10d_functional": (
    uses(
      "all_gather_into_tensor all_reduce all_to_all_single broadcast reduce_scatter_tensor"
      " wait_tensor",
      "what operators of symmetric memory compute (symmetric_memory.py)",
    ),
  ),
  "torch.ops.aten": (
    uses(
      "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _assert_async"
      " _assert_scalar _index_put_impl _reshape_copy"
      " _assert_tensor_metadata _cdist_forward _embedding_bag _embedding_bag_forward_only"
      " _functional_assert_async _euclidean_dist _grouped_mm _histogramdd_from_bin_cts _int_mm"
      " _is_all_true"
      " _linalg_det _linalg_slogdet _linalg_solve_ex _local_scalar_dense"
      " _native_batch_norm_legit_no_training"
      " _pdist_forward _scaled_mm _to_copy _trilinear _unique2 _unsafe_index _unsafe_index_put"
      " _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view"
      " _upsample_bicubic2d_aa _upsample_bilinear2d_aa _weight_int8pack_mm _weight_int4pack_mm"
      " _weight_int4pack_mm_for_cpu _convert_weight_to_int4pack_for_cpu",
      "operators that models reach by other names",
    ),
  ),
  # torchvision, which is looked at if the environment has it.
  "torchvision.ops.boxes": (
    replaces("__code__", "does not ask how many boxes there are (detection.py)", of="batched_nms"),
    replaces("_batched_nms_vanilla", "what it calls then"),
  ),
  "torchvision.ops.poolers": (replaces("len", "returns a size that the data decides"),),
  "torchvision.models.detection._utils": (
    replaces("decode", "does not ask whether there are boxes", of="BoxCoder"),
  ),
  "torchvision.models.detection.roi_heads": (
    uses("expand_boxes expand_masks", "masks with an edge, and their boxes"),
    replaces("heatmaps_to_keypoints", "resizes maps to the largest box (detection.py)"),
  ),
  "torchvision.models.detection.transform": (
    replaces("paste_masks_in_image", "resizes all masks at once"),
  ),
  # torchaudio, which is looked at if the environment has it.
  "torchaudio.functional.filtering": (
    replaces("_lfilter_core_loop", "filters blocks of samples (filters.py)"),
    replaces("_overdrive_core_loop_cpu _overdrive_core_loop_generic", "filters the same way"),
  ),
  # transformers, which is looked at if the environment has it.
  "transformers.utils.import_utils": (
    replaces("is_torchdynamo_exporting", "lets Mamba scan (scans.py)"),
  ),
  # SymPy.
  "sympy.core.basic": (
    replaces("free_symbols", "keeps what it has found (repeated_sizes.py)", of="Basic"),
  ),
  "sympy.functions.elementary.miscellaneous": (
    replaces("_is_connected", "keeps what it has found (repeated_sizes.py)", of="MinMaxBase"),
  ),
  # Triton.
  "triton.backends.compiler": (uses("GPUTarget", "the GPU that Triton compiles for"),),
  "triton.compiler": (uses("ASTSource", "a kernel that Triton compiles"),),
  "triton.compiler.errors": (uses("CompilationError", "a kernel that Triton refuses"),),
  "triton.runtime.errors": (
    uses("OutOfResources PTXASError", "a configuration that does not fit"),
  ),
  "triton.knobs": (uses("compilation language nvidia", "settings, and the paths of tools"),),
  "triton.runtime.driver": (
    replaces("_active", "needs no GPU (fake_cuda.py)", of="DriverConfig"),
    uses("driver", "Triton's driver"),
  ),
  "triton.runtime.jit": (
    replaces("__getitem__", "a launch becomes a call (user_kernels.py)", of="KernelInterface"),
  ),
  "triton.tools.tensor_descriptor": (
    uses(
      "base shape strides block_shape padding",
      "a descriptor of a model's kernel",
      of="TensorDescriptor",
    ),
  ),
  "triton.experimental.gluon": (uses("constexpr_function jit", "a kernel in Gluon"),),
  "triton.experimental.gluon._runtime": (
    uses("GluonASTSource", "a kernel in Gluon that Triton compiles"),
  ),
  "triton.experimental.gluon.language": (
    uses(
      "BlockedLayout DistributedLinearLayout DotOperandLayout NVMMADistributedLayout"
      " NVMMASharedLayout SliceLayout SwizzledSharedLayout allocate_shared_memory arange cdiv"
      " constexpr convert_layout exp exp2 float32 full inline_asm_elementwise int16 int32 int64"
      " int8 join load log2 max maximum minimum num_programs permute program_id reshape rsqrt"
      " split static_assert static_range store sum warp_specialize where",
      "the language",
    ),
    uses("get_default_for", "the layout of a tile", of="NVMMASharedLayout"),
  ),
  "triton.experimental.gluon.language.nvidia.ampere": (uses("mma_v2", "products of tensor cores"),),
  "triton.experimental.gluon.language.nvidia.ampere.async_copy": (
    uses("mbarrier_arrive", "copies without waiting"),
    uses("async_copy_global_to_shared", "copies to shared memory (torch_compat.gluon)"),
    uses("async_load", "another name for it", first="2.14"),
  ),
  "triton.experimental.gluon.language.nvidia.hopper": (
    uses("fence_async_shared warpgroup_mma warpgroup_mma_wait", "products of a group of warps"),
  ),
  "triton.experimental.gluon.language.nvidia.hopper.mbarrier": (
    uses("MBarrierLayout arrive init wait", "barriers"),
  ),
}

PATHS = frozenset(
  path for module, rows in SURFACE.items() for row in rows for path in row.paths(module)
)
REPLACED = frozenset(
  path
  for module, rows in SURFACE.items()
  for row in rows
  if row.replaced
  for path in row.paths(module)
)
