package husk;

import java.util.List;

/**
 * Describes an input or an output of a function.
 *
 * @param dtype the type of the elements of a tensor; null for other values
 * @param rank the number of dimensions of a tensor
 * @param ranges the smallest and the largest size of each dimension of an input; empty for outputs
 * @param isWritten whether a run writes to the memory of the tensor, that of an input too
 */
public record ValueInfo(
    String name, Kind kind, DType dtype, int rank, List<Range> ranges, boolean isWritten) {
  /** Describes a value that no run writes to. */
  public ValueInfo(String name, Kind kind, DType dtype, int rank, List<Range> ranges) {
    this(name, kind, dtype, rank, ranges, false);
  }

  /** The smallest and the largest size of a dimension. */
  public record Range(long min, long max) {}
}
