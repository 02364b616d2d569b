package husk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A contiguous tensor in memory outside of Java's heap, which runs use without a copy. A run writes
 * to the memory of an input if the program does (ValueInfo.isWritten).
 */
public final class Tensor {
  private static final int ALIGNMENT = 64;

  private final DType dtype;
  private final long[] sizes;
  private final ByteBuffer memory;
  final long address;

  private Tensor(DType dtype, long[] sizes, ByteBuffer memory) {
    this.dtype = dtype;
    this.sizes = sizes;
    this.memory = memory;
    this.address = Native.address(memory);
  }

  /** A tensor of zeros. */
  public static Tensor of(DType dtype, long... sizes) {
    long bytes = dtype.size();
    boolean fits = true;
    for (long size : sizes) {
      fits &= size >= 0 && (size == 0 || bytes <= Integer.MAX_VALUE / size);
      if (!fits) break;
      bytes *= size;
    }
    if (!fits || bytes > Integer.MAX_VALUE - 2 * ALIGNMENT) {
      throw HuskException.invalid(
          "a tensor of the sizes %s: a ByteBuffer has less than 2 GiB", Arrays.toString(sizes));
    }
    int whole = ((int) bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ByteBuffer block = ByteBuffer.allocateDirect(whole + ALIGNMENT).alignedSlice(ALIGNMENT);
    ByteBuffer memory = block.slice(0, (int) bytes).order(ByteOrder.nativeOrder());
    return new Tensor(dtype, sizes.clone(), memory);
  }

  /** A copy of the elements. */
  public static Tensor of(float[] elements, long... sizes) {
    Tensor tensor = sized(DType.F32, elements.length, sizes);
    tensor.memory.asFloatBuffer().put(elements);
    return tensor;
  }

  /** A copy of the elements. */
  public static Tensor of(double[] elements, long... sizes) {
    Tensor tensor = sized(DType.F64, elements.length, sizes);
    tensor.memory.asDoubleBuffer().put(elements);
    return tensor;
  }

  /** A copy of the elements. */
  public static Tensor of(long[] elements, long... sizes) {
    Tensor tensor = sized(DType.I64, elements.length, sizes);
    tensor.memory.asLongBuffer().put(elements);
    return tensor;
  }

  /** A copy of the elements. */
  public static Tensor of(int[] elements, long... sizes) {
    Tensor tensor = sized(DType.I32, elements.length, sizes);
    tensor.memory.asIntBuffer().put(elements);
    return tensor;
  }

  /** A copy of the bytes, which are elements of any type. */
  public static Tensor of(DType dtype, byte[] bytes, long... sizes) {
    if (bytes.length % dtype.size() != 0) {
      throw HuskException.invalid("%d bytes are no elements of %s", bytes.length, dtype);
    }
    Tensor tensor = sized(dtype, bytes.length / dtype.size(), sizes);
    tensor.memory.duplicate().put(bytes);
    return tensor;
  }

  private static Tensor sized(DType dtype, long count, long[] sizes) {
    Tensor tensor = of(dtype, sizes);
    long needed = tensor.memory.capacity() / dtype.size();
    if (count != needed) {
      throw HuskException.invalid(
          "%d elements for a tensor %s %s, which needs %d",
          count, dtype, Arrays.toString(sizes), needed);
    }
    return tensor;
  }

  public DType dtype() {
    return dtype;
  }

  public long[] sizes() {
    return sizes.clone();
  }

  // For calls that only read them.
  long[] ownSizes() {
    return sizes;
  }

  /** The memory, in the order of bytes of this machine. The tensor must outlive its use. */
  public ByteBuffer memory() {
    return memory;
  }

  /** A copy of the elements of an f32 tensor. */
  public float[] floats() {
    expect(DType.F32);
    float[] elements = new float[memory.capacity() / 4];
    memory.asFloatBuffer().get(elements);
    return elements;
  }

  /** A copy of the elements of an f64 tensor. */
  public double[] doubles() {
    expect(DType.F64);
    double[] elements = new double[memory.capacity() / 8];
    memory.asDoubleBuffer().get(elements);
    return elements;
  }

  /** A copy of the elements of an i64 tensor. */
  public long[] longs() {
    expect(DType.I64);
    long[] elements = new long[memory.capacity() / 8];
    memory.asLongBuffer().get(elements);
    return elements;
  }

  /** A copy of the elements of an i32 tensor. */
  public int[] ints() {
    expect(DType.I32);
    int[] elements = new int[memory.capacity() / 4];
    memory.asIntBuffer().get(elements);
    return elements;
  }

  private void expect(DType wanted) {
    if (dtype != wanted) {
      throw HuskException.invalid("a tensor of %s is read as %s", dtype, wanted);
    }
  }
}
