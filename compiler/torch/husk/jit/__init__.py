"""torch.compile(backend="husk"): Inductor's graphs as programs of libhusk in the same process."""
