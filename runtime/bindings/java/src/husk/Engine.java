package husk;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;

/**
 * The CPU and the operators that programs on it may call. All threads may use it.
 *
 * <p>`close` is called when no other thread uses the engine; the collector does it otherwise.
 */
public final class Engine implements AutoCloseable {
  /** The options of an engine. */
  public static final class Options {
    private boolean hostImages;
    private boolean verifyContent;
    private int threads = 1;
    private BooleanSupplier cancel;
    private BiConsumer<Boolean, String> log;

    /** Accepts files with native code for the CPU: open only files that you trust. */
    public Options allowHostImages() {
      hostImages = true;
      return this;
    }

    /** Compares all images and constants with their hashes. */
    public Options verifyContent() {
      verifyContent = true;
      return this;
    }

    /** The number of threads for kernels and operators of the CPU; 1 by default. */
    public Options threads(int count) {
      threads = count;
      return this;
    }

    /** Is asked between the steps of a run, and ends the run if it returns true. */
    public Options cancel(BooleanSupplier question) {
      cancel = question;
      return this;
    }

    /** Receives messages; the first argument is true for a warning. */
    public Options log(BiConsumer<Boolean, String> receiver) {
      log = receiver;
      return this;
    }
  }

  final Handle handle;

  public Engine() {
    this(new Options());
  }

  /** Registers the operators of libhusk_ops. */
  public Engine(Options options) {
    if (options.threads < 1) throw HuskException.invalid("%d threads", options.threads);
    long address =
        Native.createEngine(
            options.hostImages,
            options.verifyContent,
            options.threads,
            options.cancel,
            options.log);
    handle = new Handle(this, address, null, Native::releaseEngine);
  }

  @Override
  public void close() {
    handle.close();
  }

  /** Opens an artifact, and maps it. Truncating the file while it is mapped ends the process. */
  public Program open(Path path) {
    return program(Native.open(address(), Native.utf8(path.toString())));
  }

  /** Loads an artifact from memory. The bytes are copied. */
  public Program load(byte[] bytes) {
    return program(Native.load(address(), bytes));
  }

  /**
   * Registers an operator of the application for programs that are opened afterwards.
   *
   * @param contract names the arguments and says what the operator does with them; husk_op.contract
   *     in the header husk/op.h describes the text
   */
  public void addOperator(String name, String contract, Operator operator) {
    Native.addOperator(address(), Native.utf8(name), Native.utf8(contract), operator);
    Reference.reachabilityFence(this);
  }

  /** The name of the CPU. */
  public String deviceName() {
    String name = Native.text(Native.deviceName(address()));
    Reference.reachabilityFence(this);
    return name;
  }

  /** The version of the library, such as "0.1.0". */
  public static String version() {
    return Native.text(Native.version());
  }

  private Program program(long address) {
    Program program = new Program(this, address);
    Reference.reachabilityFence(this);
    return program;
  }

  private long address() {
    if (handle.isClosed()) throw HuskException.invalid("the engine is closed");
    return handle.address;
  }
}
