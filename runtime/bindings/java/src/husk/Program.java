package husk;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A loaded artifact. All threads may use it.
 *
 * <p>`close` is called when no other thread uses the program; its sessions stay usable. The
 * collector does it otherwise.
 */
public final class Program implements AutoCloseable {
  private record Function(
      String name, String target, List<ValueInfo> inputs, List<ValueInfo> outputs) {}

  private static final int MAX_INFO = 4 + 2 * 64;

  final Handle handle;
  private final List<Function> functions = new ArrayList<>();
  private final Map<String, Integer> numbers = new LinkedHashMap<>();
  private final List<StorageInfo> states;
  private final List<StorageInfo> constants;
  private final Map<String, String> metadata = new LinkedHashMap<>();
  private final String pytree;

  Program(Engine engine, long address) {
    handle = new Handle(this, address, engine.handle, Native::releaseProgram);
    int count = Native.functionCount(address);
    for (int i = 0; i < count; ++i) {
      String name = Native.text(Native.functionName(address, i));
      String target = Native.text(Native.functionTarget(address, i));
      functions.add(
          new Function(name, target, values(address, i, false), values(address, i, true)));
      numbers.put(name, i);
    }
    states = storages(address, true);
    constants = storages(address, false);
    int entries = Native.metadataCount(address);
    for (int i = 0; i < entries; ++i) {
      metadata.put(
          Native.text(Native.metadata(address, i, true)),
          Native.text(Native.metadata(address, i, false)));
    }
    pytree = Native.text(Native.pytree(address));
  }

  private static List<ValueInfo> values(long address, int function, boolean output) {
    int count = Native.valueCount(address, function, output);
    List<ValueInfo> all = new ArrayList<>(count);
    long[] info = new long[MAX_INFO];
    for (int i = 0; i < count; ++i) {
      String name = Native.text(Native.value(address, function, i, output, info));
      int rank = (int) info[2];
      List<ValueInfo.Range> ranges = new ArrayList<>();
      for (int d = 0; d < rank && !output; ++d) {
        ranges.add(new ValueInfo.Range(info[4 + 2 * d], info[5 + 2 * d]));
      }
      Kind kind = Kind.of(info[0]);
      DType dtype = kind == Kind.TENSOR ? DType.of(info[1]) : null;
      List<ValueInfo.Range> fixed = Collections.unmodifiableList(ranges);
      all.add(new ValueInfo(name, kind, dtype, rank, fixed, info[3] != 0));
    }
    return Collections.unmodifiableList(all);
  }

  private static List<StorageInfo> storages(long address, boolean state) {
    int count = Native.storageCount(address, state);
    List<StorageInfo> all = new ArrayList<>(count);
    long[] info = new long[MAX_INFO];
    for (int i = 0; i < count; ++i) {
      String name = Native.text(Native.storage(address, i, state, info));
      List<Long> sizes = new ArrayList<>();
      for (int d = 0; d < info[1]; ++d) sizes.add(info[3 + d]);
      all.add(
          new StorageInfo(
              name, DType.of(info[0]), Collections.unmodifiableList(sizes), info[2]));
    }
    return Collections.unmodifiableList(all);
  }

  @Override
  public void close() {
    handle.close();
  }

  /** The names of the functions. */
  public List<String> functions() {
    return functions.stream().map(Function::name).toList();
  }

  /** The number of the function of this name. */
  public int function(String name) {
    Integer number = numbers.get(name);
    if (number != null) return number;
    throw new HuskException(
        Status.NOT_FOUND, "no function '" + name + "': the file has " + functions());
  }

  /** The target that runs a function, such as "host avx512". */
  public String target(int function) {
    return at(function).target;
  }

  public List<ValueInfo> inputs(int function) {
    return at(function).inputs;
  }

  public List<ValueInfo> outputs(int function) {
    return at(function).outputs;
  }

  public List<StorageInfo> states() {
    return states;
  }

  public List<StorageInfo> constants() {
    return constants;
  }

  /** What the application has added to the file when it was exported. */
  public Map<String, String> metadata() {
    return Collections.unmodifiableMap(metadata);
  }

  /** How inputs and outputs were nested when the model was exported; may be empty. */
  public String pytree() {
    return pytree;
  }

  /** Replaces a constant for all sessions, when no run is under way. */
  public void updateConstant(String name, Tensor value) {
    StorageInfo info = constant(name);
    fits(info, value);
    update(info, value, 0);
  }

  /**
   * Replaces elements of a constant for all sessions, from the element {@code first} on, when no
   * run is under way.
   */
  public void updateConstantPart(String name, long first, Tensor value) {
    StorageInfo info = constant(name);
    if (value.dtype() != info.dtype()) {
      fits(info, value);
    }
    // The limit lets the product fit; the call refuses it.
    long elements = info.bytes() / value.dtype().size();
    long limited = first < 0 ? elements + 1 : Math.min(first, elements + 1);
    update(info, value, limited * value.dtype().size());
  }

  /** The constant of a name, or of another name that the model has for the same tensor. */
  private StorageInfo constant(String name) {
    return find(constants, "constant", metadata.getOrDefault("husk.tied." + name, name));
  }

  private void update(StorageInfo info, Tensor value, long offset) {
    ByteBuffer memory = value.memory();
    Native.updateConstant(
        address(), constants.indexOf(info), memory, offset, memory.capacity());
    Reference.reachabilityFence(this);
    Reference.reachabilityFence(value);
  }

  public Session session() {
    return session(new Session.Options());
  }

  public Session session(Session.Options options) {
    Session session = new Session(this, options);
    Reference.reachabilityFence(this);
    return session;
  }

  static StorageInfo find(List<StorageInfo> all, String what, String name) {
    for (StorageInfo info : all) {
      if (info.name().equals(name)) return info;
    }
    throw new HuskException(
        Status.NOT_FOUND,
        "no " + what + " '" + name + "': the file has "
            + all.stream().map(StorageInfo::name).toList());
  }

  static void fits(StorageInfo info, Tensor value) {
    if (value.dtype() == info.dtype() && value.memory().capacity() == info.bytes()) return;
    throw HuskException.invalid(
        "%s is %s %s, %d bytes; a tensor of %d bytes of %s was given",
        info.name(),
        info.dtype(),
        info.sizes(),
        info.bytes(),
        value.memory().capacity(),
        value.dtype());
  }

  private Function at(int function) {
    if (function >= 0 && function < functions.size()) return functions.get(function);
    throw HuskException.invalid("function %d of %d", function, functions.size());
  }

  long address() {
    if (handle.isClosed()) throw HuskException.invalid("the program is closed");
    return handle.address;
  }
}
