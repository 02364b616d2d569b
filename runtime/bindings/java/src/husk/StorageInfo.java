package husk;

import java.util.List;

/** Describes a state or a constant. */
public record StorageInfo(String name, DType dtype, List<Long> sizes, long bytes) {}
