"""The tests of PyTorch's FX and AOT backends (test_fxir_backend.py, test_aot_inductor.py). For each
of them this file names the test of Husk that shows the same behaviour, or the reason why there is
none. Only the names come from PyTorch.

  python tests/torch/exports/upstream.py      prints the list and the counts
"""

import re

# Pairs of PyTorch's test and Husk's test, which is FILE-ROW of the rows or test_FILE.py::TEST.
SHOWN = {
  "fxir": """
basic graphs-linear_and_sum
multiple_kernels graphs-several_dynamic_kernels
extern graphs-product_with_a_bias
fallback operators-sum_of_batched_products
cat_inputs guards-joined_dynamic
cat_views aliases-joined
cat_to_alloc aliases-joined
cat_reinterpret_view aliases-stacked
reshape_output guards-reshaped
output_slice_view aliases-output_of_a_part
extern_multi_output graphs-ordered
fallback_tuple_constant_arg operators-complex_turned
duplicate_input edges-same_tensor_twice
dynamic_shapes_and_strides guards-transposed_dynamic
dynamic_shapes_with_padding guards-padded_dynamic
dynamic_shapes_precomputed_size guards-precomputed_sizes
dynamic_launch_grid_calc test_triton_kernels.py::test_a_grid_of_symbols
export_const_placeholder values-numbers_that_are_constants
scatter_fallback_scalar_src operators-scattered
scatter_reduce_fallback operators-scattered_in_place
index_put_fallback operators-put_beside_none
cond_subgraph control-branch
cond_no_operands test_control.py::test_cond_without_operands
aoti_fx_add edges-same_tensor_twice
aoti_fx_const constants-scalar_literal
aoti_fx_linear constants-linear
aoti_fx_dynamic guards-two_inputs_equal
dynamic_input_expr guards-odd_alone
reshape_dynamic_ph values-int_that_is_a_size
reshape_dynamic_tmd guards-reshaped
cond_multi_inputs_and_outputs test_control.py::test_cond_with_several_results
cond_dynamic_shape_pred_scalar_closure control-branch_by_a_size
mismatched_branch_dynamic test_control.py::test_results_of_different_sizes
dims_dynamic_outer_static_padded_inner guards-padded_static_inside
dynamic_scalar_output values-numbers_out
item data-floats_and_bools_from_tensors
const_folded_subgraph constants-constants_joined
rewrite_floor_div_mul_pow test_expressions.py::test_ints
rewrite_floor_div_mul_rational test_expressions.py::test_ints
rewrite_floor_div_no_rewrite_div test_expressions.py::test_ints
rewrite_floor_div_nested test_expressions.py::test_ints
rewrite_floor_div_rational_const test_expressions.py::test_ints
rewrite_floor_div_no_distribute_mul_floordiv test_expressions.py::test_ints
rewrite_floor_div_rational_multi_pows test_expressions.py::test_ints
rewrite_floor_div_variable_exp test_expressions.py::test_ints
launch_grid_dynamic_padding test_triton_kernels.py::test_a_grid_of_symbols
""",
  "aoti": """
simple graphs-linear_and_sum
invoke_subgraph_nested_region control-region_called_twice
seq constants-sequence
addmm graphs-product_with_a_bias
missing_output aliases-dead_output
output_misaligned aliases-output_of_a_part
empty_cat_dtype_promotion edges-promoted
same_backing test_extern.py::test_every_kind_of_argument
simple_split aliases-split
aliased_buffer_reuse aliases-views_of_views
buffer_reuse graphs-repeated_layers
duplicated_params constants-tied
amp_fallback_random test_random.py::test_random_operators_equal_eager
non_tensor_input values-numbers_that_are_constants
pytree_inputs values-nested
no_args values-no_input_but_weights
empty_graph values-empty_graph
repeat_output aliases-output_twice
view_outputs aliases-output_views_another
structseq_output values-named_tuples
dynamic_cat guards-joined_dynamic
reuse_kernel graphs-repeated_layers
reuse_kernel_dynamic graphs-repeated_layers
repeated_calling graphs-repeated_layers
shifted_constraint_ranges guards-one_more
convolution graphs-convolution_1d
non_contiguous_output_alias aliases-permuted
multiple_output_alias aliases-output_is_input
misc_1 graphs-bag_of_words
clamp_decomposition graphs-clamped
pad_non_zero_memory_leak guards-padded_and_pooled
libtorch_free_so test_c_program.py::test_example_needs_neither_python_nor_pytorch
aoti_load_package_in_fresh_subprocess test_c_program.py::test_the_sum
runtime_checks edges-checked_inputs
runtime_checks_fp8 edges-checked_inputs
runtime_checks_large values-many_inputs
runtime_checks_complex edges-checked_inputs
runtime_checks_dtype_failed edges-checked_inputs
runtime_checks_shape_failed guards-two_inputs_equal
runtime_check_overbound_no_input_leak guards-two_inputs_equal
bool_input values-numbers_that_are_constants
int_list_input graphs-int_list
misaligned_input_1 edges-misaligned_inputs
misaligned_input_2 edges-misaligned_example
assert_tensor_meta graphs-assert_of_metadata
small_constant constants-scalar_literal
empty_constant_folding graphs-several_dynamic_kernels
constant_folding constants-constants_joined
duplicate_constant_folding constants-constants_joined
constant_folding_with_update test_functions.py::test_constants_are_replaced_for_all_sessions
constant_type_propagation constants-constants_of_odd_sizes
with_offset constants-views_with_offsets
freezing constants-sequence
conv_freezing graphs-convolution_2d
deconv_freezing graphs-convolution_1d
linear_freezing constants-linear
aoti_constant_tensor constants-literal_added
aoti_constant_tensor_name_collision constants-same_name_twice
constant constants-scalar_literal
buffer_mutation_1 state-sums
buffer_mutation_2 state-running_mean
buffer_mutation_3 state-cache_by_index
buffer_mutation_4 state-state_of_small_dtypes
buffer_mutation_and_force_mmap_weights state-cache_with_its_place
return_constant constants-constants_given_back
return_view_constant constants-constants_given_back
zero_size_weight constants-empty_constants
zero_size_buffer constants-empty_constants
constant_original_fqn_and_dtype test_functions.py::test_functions_share_weights_and_state
fqn test_functions.py::test_functions_share_weights_and_state
package_constants_serialization constants-constants_of_odd_sizes
update_constant_buffer test_functions.py::test_constants_are_replaced_for_all_sessions
update_constant_buffer_simple test_functions.py::test_constants_are_replaced_for_all_sessions
simple_dynamic guards-two_inputs_equal
large_dynamic_dim graphs-without_a_bound
poi_multiple_dynamic graphs-several_dynamic_kernels
foreach_multiple_dynamic graphs-over_a_list
assert_async data-number_from_a_tensor
composed_dynamic_size guards-multiple_of_four
composed_dynamic_size_integer_symbol_recovery guards-multiple_of_four
boolean_indexing data-chosen
sym_expr_indexing graphs-sums_of_rows
upper_bound_i64 test_export.py::test_limits_of_32_bit_indices_are_checked
unbounded_expr_substitutions data-number_that_is_a_size
zero_grid_with_unbacked_symbols data-places
unbacked_expr_replacements test_data.py::test_checks_that_tie_numbers_to_sizes
replace_unbacked_symbol_with_backed_expr data-number_that_is_a_size
slice_independent_backed_symints_no_unbacked guards-slices_by_other_sizes
slice_negative_index_backed_symints_no_unbacked guards-slices_by_other_sizes
stride_with_unbacked_expr test_data.py::test_sizes_strides_and_slices
size_with_unbacked_add_expr data-sums_of_sizes
size_with_unbacked_add_expr_transitive data-sums_of_sizes
size_with_unbacked_add_and_mul_expr data-sums_of_sizes
wide_tolist_sum_precomputed_for_triton_autotune test_data.py::test_tolist
repeat_interleave data-repeated
masked_select_dynamic data-chosen
zero_grid_with_backed_symbols edges-size_zero_at_run_time
dup_unbacked_sym_decl data-slice_of_a_size
dup_unbacked_sym_decl_with_refinement data-number_that_is_a_size
symint_item data-number_from_a_tensor
symbool_item data-floats_and_bools_from_tensors
symfloat_item data-floats_and_bools_from_tensors
dynamic_scalar data-number_from_a_tensor
aoti_runtime_asserts data-number_from_a_tensor
aoti_runtime_asserts_backed_symint guards-asserted
unbacked_equals_input_size_runtime_assertion data-number_that_is_a_size
size_from_multi_output data-distinct
input_codegen_with_sympy_expr guards-solved_from_two
multi_input_nonzero_slice_shared_dim data-product_of_what_was_found
torchvision_transforms_functional_tensor_resize guards-resized
cond_simple control-branch
cond_nested control-branches_in_branches
cond_with_parameters control-branches_with_weights
cond_with_reinterpret_view_inputs_outputs control-branches_of_views
cond_with_replace_view_ops control-branches_of_views
cond_with_multiple_outputs test_control.py::test_cond_with_several_results
cond_with_outer_code_before_after control-code_around
cond_use_buffers_from_outer_scope control-code_around
cond_non_tensor_predicates control-branch_by_a_size
cond_unbacked_symint_predicate control-branch_by_a_number
cond_unbacked_symint_closure test_control.py::test_cond_closes_over_a_number_of_the_data
cond_mismatched_branch_output test_control.py::test_results_of_different_sizes
cond_symint_input control-branch_by_a_size
cond_symint_input_disable_one_pass control-branch_by_a_size
switch_simple test_control.py::test_switch
while_loop_simple control-loop
while_loop_nested control-loops_in_loops
while_loop_with_outer_code control-loop_with_code_around
while_loop_with_parameters control-loop_with_weights
while_loop_with_outer_buffers control-loop_with_code_around
while_loop_with_pytree_inputs test_control.py::test_loop_that_swaps
while_loop_with_unbacked_symint_closure test_control.py::test_loop_over_an_unbacked_number
while_loop_with_sym_expr_cond test_control.py::test_loop_that_carries_a_size
while_loop_with_conv control-loop_with_convolution
cond_share_predicate test_control.py::test_conds_that_share_a_predicate
cond_predicate_on_cpu control-branch
linear_dynamic_maxautotune graphs-repeated_layers
addmm_multiple_dynamic control-branches_with_weights
bmm_multiple_dynamic graphs-batched_products
sdpa graphs-attention_with_mask
sdpa_2 guards-attention
issue_140766 guards-attention
_int_mm operators-products_of_bytes
conv3d graphs-convolution_3d
bmm_shared_a_numerics graphs-batched_products
fallback_kernel_with_symexpr_output guards-attention
normal_functional test_random.py::test_random_operators_equal_eager
grid_sampler_3d operators-sampled_in_space
scatter_fallback operators-scattered
scatter_reduce_fallback operators-scattered_in_place
index_put_fallback operators-put_beside_none
narrow_fallback operators-narrowed
pad_fallback operators-narrowed
fill__fallback operators-filled
scatter_fallback_error_code_check test_host_index.py::test_scatter_refuses
index_put_fallback_error_code_check test_host_index.py::test_index_refuses
proxy_executor_permute operators-complex_turned
proxy_executor_abs operators-complex_numbers
proxy_executor_squeeze operators-complex_turned
proxy_executor_hann operators-windows
proxy_executor_scalar_tensor_arg operators-odd_scalars
proxy_executor_symint_scalar_arg test_extern.py::test_every_kind_of_argument
proxy_executor_default_scalar_kwarg test_extern.py::test_arguments_that_are_missing
proxy_executor_provided_scalar_kwarg operators-odd_scalars
proxy_executor_integral_add_scalar operators-odd_scalars
proxy_executor_integral_pow_scalar operators-odd_scalars
proxy_executor_bool_scalar_alpha operators-odd_scalars
proxy_executor_bool_scalar_infers_dtype operators-odd_scalars
proxy_executor_empty_int_list_arg test_extern.py::test_every_kind_of_argument
proxy_executor_error_message_preserved test_host_convolution.py::test_refuses
runtime_check_error_message_preserved test_export.py::test_wrong_inputs_are_named_in_the_error
index_put_with_none_index test_extern.py::test_index_put_with_none
add_complex operators-complex_numbers
embedding_bag graphs-bag_of_words
fft_c2c operators-transforms
stft operators-windows
custom_op_in_subgraph test_control.py::test_custom_op_in_a_branch
python_custom_op_load_package_error_in_fresh_subprocess test_upstream.py::test_a_missing_operator
fx_gm_return_tuple_validation values-numbers_out
triton_next_power_of_2 test_expressions.py::test_ints
sympy_cpp_printer_min_max guards-smaller_size
""",
}

# The reason for a refusal or for a test that does not apply, and the names of PyTorch's tests.
REFUSED = {
  "aoti": {
    "torch.export gives no sizes for the parts of a jagged tensor": "nested_tensor_from_jagged",
    "an operator of fbgemm or of a vendor, which no pack of ours has": """
        quantized_linear quantized_linear_bias_none
        quanatized_int8_linear scaled_grouped_mm scaled_dot_product_efficient_attention
        varlen_attn_paged_kv_cache
        _weight_int4pack_mm _weight_int4pack_mm_with_scales_and_zeros fp8 fp8_view_of_param aoti_fp8
        mm_out_dtype""",
    "an artifact's function runs on one device": """
        multi_device mixed_device_1 d2h_copy cuda_to_cuda_device_copy
        while_loop_with_mixed_device cond_cpu_predicate_cuda_operands
        mixed_device_zero_size_constant device_moved_constant
        update_constant_buffer_mixed_device copy_non_blocking_is_pinned""",
    "constants have one set of values: updates wait for runs, there is no inactive set": """
        update_inactive_constant_buffer
        update_inactive_constant_buffer_with_interleaved_folded_constants free_inactive_buffer""",
  },
  "fxir": {
    "backward graphs: artifacts are for inference": "backward",
  },
}
APART = {
  "fxir": {
    "the API of upstream's FX backend": """custom_compiler debug custom_backend device_type free
        cpp_raises reshape_fallback""",
    "user-defined Triton kernels: GPU only": "custom_triton custom_triton_autotune_dynamic",
    "tuning on the device": "autotune",
  },
  "aoti": {
    "cubins, CUDA graphs or GPU modules: GPU only": """
        missing_cubin loaded_modules_tracking simple_multi_arch with_cudagraphs
        large_grid replicate_on_devices on_gpu_device1 non_default_gpu_device
        load_package_multiple_gpus
        dynamic_smem_above_default_limit combo_kernel_grid_mixed_types
        small_constant_pinned_async_copy
        load_constants_allow_h2d_copy runtime_checks_device_type_failed""",
    "user-defined Triton kernels: GPU only": """
        triton_kernel_bool_param triton_kernel_lite_mode triton_kernel_bool_tensor_arg
        triton_kernel_on_device_tma triton_kernel triton_kernel_dynamic_shape_with_div
        triton_kernel_reinterpret_view
        triton_kernel_tma_descriptor_1d triton_kernel_tma_descriptor_2d triton_kernel_sympy_expr_arg
        triton_kernel_sympy_fn_like_arg triton_kernel_with_none_input triton_kernel_equal_to_1_arg
        triton_kernel_with_none_inputs_and_equal_to_1_arg triton_kernel_equal_to_1_float_arg
        triton_kernel_inf_float_arg
        triton_kernel_weird_param_order triton_kernel_dynamic_grid
        repeated_user_defined_triton_kernel
        triton_kernel_extern_kernel_arg triton_kernel_multi_output_arg
        triton_kernel_reinterpret_view_mem_leak
        triton_kernel_unbacked_symint_in_grid
        aoti_user_defined_triton_kernel_python_float_arg_signature_matches_triton
        none_args_aot_codegen autotune_int64_user_defined_triton_kernel sym_i64_input_codegen
        autotuning_args_reuse
        triton_autotuning triton_mutated_autotuning rocm_triton_autotuning
        triton_dynamic_launcher_grid
        triton_dynamic_launcher_grid_infer_from_tensor constant_int_kernel_input""",
    "tuning on the device": """
        const_graph_no_autotune_at_compile_time autotune_with_constant_folding
        bmm_large_batch_dynamic
        bmm_shared_a_offered_when_eligible bmm_shared_a_not_offered_when_disabled
        bmm_shared_a_not_offered_for_small_batch bmm_shared_a_not_offered_without_broadcast""",
    "upstream's files, packages and build": """
        output_path_1 output_path_2 model_modified_weights using_model_name_for_files
        consecutive_compiles
        aot_inductor_consts_cpp_build large_weight large_mmaped_weights
        mmaped_weights_unmapped_on_model_delete
        large_mmaped_weights_on_disk so_without_weight weight_on_disk_legacy no_compile_standalone
        compile_standalone_sets_package_cpp compile_standalone_explicit_set
        compile_standalone_package_cpp_false_raises
        shape_env_reuse shape_env_reuse_zero_consts_use_consts_asm_false backward_no_op_logging""",
    "tensor handles and memory of libtorch": """extract_constants_map create_with_external_constants
        user_managed_buffer_tensor_handle_lifetime update_user_managed_buffer fallback_mem_leak_fix
        codegen_int_array_var_fix_memory_leak run_with_grad_enabled fake_tensor_device_validation
        subclasses""",
    "options that leave checks out: an artifact checks always": """
        assert_size_stride_guarded_by_env_check
        scalar_range_asserts_disabled_drops_inferred_bound
        scalar_range_asserts_disabled_keeps_equality_asserts
        scalar_range_asserts_disabled_drops_user_check
        scalar_range_asserts_disabled_keeps_two_sided_inequality
        scalar_range_asserts_disabled_keeps_unbacked_vs_backed_bound
        scalar_range_asserts_disabled_keeps_sum_equality
        scalar_range_asserts_disabled_under_full_runtime_assert aoti_check_lowerbound_codegen
        aoti_check_upperbound_codegen""",
    "skipped upstream": "view_zero_dim_empty_tensor",
    "how upstream's regions are configured": """invoke_subgraph_nested_region_config
        aoti_custom_op_bad_fake_dtype_fails_fast""",
    "upstream's debug printer and profiler; ours is the trace of a session": """
        inf nan profile_benchmark_harness with_profiler
        with_no_triton_profiler aoti_debug_printer_codegen
        aoti_debug_printer_user_defined_triton_kernel
        aoti_debug_printer_cpp_kernel aoti_debug_printer_sym_inputs aoti_debug_printer_fp8_dtype
        aoti_debug_printer_save_dir
        aoti_debug_printing_model_inputs_codegen aoti_profiler aoti_profiler_input_shapes
        aoti_profiler_conv_input_shapes
        aoti_profiler_multi_output_fallback_input_shapes aoti_profiler_tensor_list_input_shapes
        aoti_profiler_records_schema_arg_order aoti_profiler_records_unprovided_default_args
        aoti_profiler_records_kwarg_only_tensor_once
        aoti_profiler_records_kwarg_supplied_positional_args_once
        kernel_profile_repeated_kernel_numel aoti_user_defined_triton_kernel_profiling
        kernel_profile_numel_scope""",
  },
}


def shown():
  """The tests that run: ((file, PyTorch's test), our test)."""
  return [
    ((file, line.split()[0]), line.split()[1])
    for file, text in SHOWN.items()
    for line in text.strip().splitlines()
  ]


def others(which):
  """The tests that do not run: ((file, PyTorch's test), reason)."""
  return [
    ((file, name), reason)
    for file, reasons in which.items()
    for reason, names in reasons.items()
    for name in re.findall(r"\S+", names)
  ]


def summary():
  refused, apart = len(others(REFUSED)), len(others(APART))
  return f"upstream: {len(shown())} run, {refused} refused, {apart} do not apply"


if __name__ == "__main__":
  for (source, test), ours in shown():
    print(f"{source:5} {test:55} {ours}")
  for said, part in (("refused", REFUSED), ("does not apply", APART)):
    for (source, test), reason in others(part):
      print(f"{source:5} {test:55} {said}: {reason}")
  print(summary())
