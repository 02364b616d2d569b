package husk;

import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.List;

/**
 * The state and memory of one user of a program. It has a lock: calls of several threads follow one
 * another. For parallel runs, make several sessions.
 */
public final class Session implements AutoCloseable {
  /** How a session runs functions. */
  public enum Mode {
    /** As a graph if the device and the function allow it. */
    AUTO(Constants.HUSK_MODE_AUTO),
    /** As a launch list. */
    LIST(Constants.HUSK_MODE_LIST),
    /** As a graph. */
    GRAPH(Constants.HUSK_MODE_GRAPH);

    private final int code;

    Mode(int code) {
      this.code = code;
    }
  }

  /** The options of a session. */
  public static final class Options {
    private Mode mode = Mode.AUTO;
    private long memoryLimit;
    private long loopLimit;

    public Options mode(Mode value) {
      mode = value;
      return this;
    }

    /** The bytes of device memory besides the state; 0 is no limit. */
    public Options memoryLimit(long bytes) {
      memoryLimit = bytes;
      return this;
    }

    /** The turns of loops in one run; 0 is 2^32. */
    public Options loopLimit(long turns) {
      loopLimit = turns;
      return this;
    }
  }

  private final Program program;
  private final Handle handle;
  private long runs;
  private long[] values = new long[32];
  private long[] results = new long[32];

  Session(Program program, Options options) {
    this.program = program;
    long address =
        Native.createSession(
            program.address(), options.mode.code, options.memoryLimit, options.loopLimit);
    handle = new Handle(this, address, program.handle, Native::releaseSession);
  }

  @Override
  public synchronized void close() {
    ++runs;
    handle.close();
  }

  /** Runs the function of this name. */
  public Output[] run(String function, Object... inputs) {
    return run(program.function(function), inputs);
  }

  /**
   * Runs a function and waits for it.
   *
   * @param inputs each a Tensor, a number or a Boolean. Integers and longs are ints of the
   *     function, floats and doubles are its floats.
   */
  public synchronized Output[] run(int function, Object... inputs) {
    final long address = address();
    ++runs;
    List<ValueInfo> outputs = program.outputs(function);
    final int used = pack(inputs);
    int needed = 0;
    for (ValueInfo output : outputs) needed += 4 + 2 * output.rank();
    if (results.length < needed) results = new long[needed];
    Native.run(address, function, values, used, inputs.length, results, outputs.size());
    Reference.reachabilityFence(inputs);
    Output[] all = new Output[outputs.size()];
    int at = 0;
    for (int i = 0; i < all.length; ++i) {
      Kind kind = outputs.get(i).kind();
      if (kind != Kind.TENSOR) {
        all[i] = new Output(this, runs, kind, results[at + 1]);
        at += 2;
        continue;
      }
      int rank = (int) results[at + 3];
      int sizes = at + 4;
      all[i] =
          new Output(
              this,
              runs,
              kind,
              outputs.get(i).dtype(),
              results[at + 1],
              results[at + 2] == 1,
              Arrays.copyOfRange(results, sizes, sizes + rank),
              Arrays.copyOfRange(results, sizes + rank, sizes + 2 * rank));
      at = sizes + 2 * rank;
    }
    return all;
  }

  /** Plans memory for the shapes of these inputs. */
  public synchronized void resize(int function, Object... inputs) {
    final long address = address();
    ++runs;
    Native.resize(address, function, values, pack(inputs), inputs.length);
    Reference.reachabilityFence(inputs);
  }

  /** Narrows the range of an input's dimension for this session. */
  public synchronized void setRange(int function, int input, int dim, long min, long max) {
    Native.setRange(address(), function, input, dim, min, max);
  }

  /** A copy of a state. */
  public synchronized Tensor getState(String name) {
    int number = state(name);
    StorageInfo info = program.states().get(number);
    Tensor value =
        Tensor.of(info.dtype(), info.sizes().stream().mapToLong(Long::longValue).toArray());
    Native.getState(address(), number, value.memory());
    return value;
  }

  public synchronized void setState(String name, Tensor value) {
    int number = state(name);
    Program.fits(program.states().get(number), value);
    Native.setState(address(), number, value.memory());
    Reference.reachabilityFence(value);
  }

  /** Gives a state the value that it has in a new session. */
  public synchronized void resetState(String name) {
    Native.resetState(address(), state(name));
  }

  /** Copies a state of another session of the program, which does not run at the time. */
  public synchronized void copyState(String name, Session from) {
    Native.copyState(address(), state(name), from.address());
    Reference.reachabilityFence(from);
  }

  synchronized Tensor copy(long run, DType dtype, long address, long[] sizes, long[] strides) {
    if (run != runs) {
      throw HuskException.invalid("the session has run again or is closed: read outputs before");
    }
    Tensor tensor = Tensor.of(dtype, sizes);
    Native.gather(address, sizes, strides, dtype.size(), tensor.memory());
    return tensor;
  }

  private int state(String name) {
    return program.states().indexOf(Program.find(program.states(), "state", name));
  }

  // Describes the inputs in `values`. Returns the number of entries.
  private int pack(Object[] inputs) {
    int used = 0;
    for (Object input : inputs) {
      int rank = input instanceof Tensor tensor ? tensor.ownSizes().length : 0;
      if (values.length < used + 4 + rank) {
        values = Arrays.copyOf(values, 2 * values.length + 4 + rank);
      }
      if (input instanceof Tensor tensor) {
        values[used++] = Kind.TENSOR.code;
        values[used++] = tensor.address;
        values[used++] = tensor.dtype().code;
        values[used++] = rank;
        System.arraycopy(tensor.ownSizes(), 0, values, used, rank);
        used += rank;
      } else if (input instanceof Boolean flag) {
        values[used++] = Kind.BOOL.code;
        values[used++] = flag ? 1 : 0;
      } else if (input instanceof Double || input instanceof Float) {
        values[used++] = Kind.FLOAT.code;
        values[used++] = Double.doubleToRawLongBits(((Number) input).doubleValue());
      } else if (input instanceof Long || input instanceof Integer) {
        values[used++] = Kind.INT.code;
        values[used++] = ((Number) input).longValue();
      } else {
        throw HuskException.invalid(
            "an input is a Tensor, a Long, an Integer, a Double, a Float or a Boolean, not %s",
            input == null ? "null" : input.getClass().getName());
      }
    }
    return used;
  }

  private long address() {
    if (handle.isClosed()) throw HuskException.invalid("the session is closed");
    return handle.address;
  }
}
