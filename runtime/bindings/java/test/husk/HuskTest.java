package husk;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

// The tests run tests/bindings/program.hir, which tests/bindings/run.sh compiles. With the argument
// "time" and a file they print the nanoseconds of a run of its first function.
final class HuskTest {
  private HuskTest() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length > 1) {
      time(arguments[1], Integer.parseInt(arguments[2]));
      return;
    }
    int failed = 0;
    int passed = 0;
    for (Method method : HuskTest.class.getDeclaredMethods()) {
      boolean isTest = method.getName().startsWith("test") && method.getParameterCount() == 0;
      if (!isTest || !Modifier.isStatic(method.getModifiers())) continue;
      try {
        method.invoke(null);
        ++passed;
      } catch (InvocationTargetException failure) {
        ++failed;
        System.out.println("FAILED " + method.getName());
        failure.getCause().printStackTrace(System.out);
      }
    }
    System.out.printf("Java: %d passed, %d failed%n", passed, failed);
    System.exit(failed == 0 ? 0 : 1);
  }

  private static final Path ARTIFACT =
      Path.of(System.getenv().getOrDefault("HUSK_TEST_PROGRAM", "run tests/bindings/run.sh"));

  private static void equal(Object got, Object wanted) {
    Object[] both = {got, wanted};
    if (!Arrays.deepEquals(new Object[] {both[0]}, new Object[] {both[1]})) {
      throw new AssertionError(
          "got " + Arrays.deepToString(new Object[] {got})
              + ", wanted " + Arrays.deepToString(new Object[] {wanted}));
    }
  }

  private static void fails(Status status, String part, Runnable call) {
    try {
      call.run();
    } catch (HuskException failure) {
      equal(failure.status(), status);
      if (!failure.getMessage().contains(part)) {
        throw new AssertionError(failure.getMessage() + " has no '" + part + "'");
      }
      return;
    }
    throw new AssertionError("nothing failed, wanted " + part);
  }

  // test::scale, which multiplies a tensor by a number.
  private static void scale(Argument[] arguments) {
    FloatBuffer x = arguments[0].memory(DType.F32).asFloatBuffer();
    FloatBuffer y = arguments[2].memory(DType.F32).asFloatBuffer();
    while (x.hasRemaining()) y.put((float) (x.get() * arguments[1].number()));
  }

  private static Program program(Operator operator) {
    Engine engine = new Engine();
    engine.addOperator("test::scale", "x factor y:w", operator);
    return engine.open(ARTIFACT);
  }

  static void testDescription() {
    Program program = program(HuskTest::scale);
    equal(program.functions(), List.of("linear", "scale", "accumulate"));
    equal(program.function("linear"), 0);
    equal(program.target(0).startsWith("host "), true);
    List<ValueInfo.Range> ranges =
        List.of(new ValueInfo.Range(1, 8), new ValueInfo.Range(3, 3));
    equal(program.inputs(0), List.of(new ValueInfo("x", Kind.TENSOR, DType.F32, 2, ranges)));
    List<Kind> kinds = program.outputs(0).stream().map(ValueInfo::kind).toList();
    equal(kinds, List.of(Kind.TENSOR, Kind.INT));
    equal(
        program.states(),
        List.of(new StorageInfo("total", DType.F32, List.of(4L, 2L), 32)));
    equal(program.constants().stream().map(StorageInfo::bytes).toList(), List.of(24L, 8L));
    equal(program.pytree(), "");
    equal(program.metadata().size(), 0);
    equal(Engine.version().isEmpty(), false);
    equal(new Engine().deviceName().isEmpty(), false);
    equal(DType.BF16.size() + DType.BF16.toString(), "2bf16");
    fails(
        Status.NOT_FOUND,
        "no function 'other': the file has [linear",
        () -> program.function("other"));
    fails(Status.INVALID_ARGUMENT, "function 3 of 3", () -> program.inputs(3));
  }

  static void testWrittenInputs() {
    Program program = new Engine().open(Path.of(System.getenv("HUSK_TEST_WRITTEN")));
    equal(program.inputs(0).stream().map(ValueInfo::isWritten).toList(), List.of(true, false));
    Tensor x = Tensor.of(new float[] {1, 2}, 2);
    Tensor y = Tensor.of(new float[] {3, 4}, 2);
    equal(program.session().run(0, x, y)[0].integer(), 2L);
    equal(x.floats(), y.floats());
  }

  static void testShapes() {
    Session session = program(HuskTest::scale).session();
    for (int rows : new int[] {1, 8, 2}) {
      float[] x = new float[rows * 3];
      for (int i = 0; i < x.length; ++i) x[i] = i;
      float[] wanted = new float[rows * 2];
      for (int i = 0; i < rows; ++i) {
        wanted[2 * i] = x[3 * i] + 3 * x[3 * i + 2] + 0.5f;
        wanted[2 * i + 1] = 2 * x[3 * i + 1] + x[3 * i + 2] - 0.5f;
      }
      Output[] outputs = session.run("linear", Tensor.of(x, rows, 3));
      equal(outputs[0].sizes(), new long[] {rows, 2});
      equal(outputs[0].floats(), wanted);
      equal(outputs[1].integer(), (long) rows);
      fails(Status.INVALID_ARGUMENT, "a tensor of f32 is read as i32", outputs[0].tensor()::ints);
      fails(Status.INVALID_ARGUMENT, "no tensor", outputs[1]::tensor);
      fails(Status.INVALID_ARGUMENT, "no float", outputs[1]::number);
      fails(Status.INVALID_ARGUMENT, "no int", outputs[0]::integer);
      session.run(0, Tensor.of(x, rows, 3));
      fails(Status.INVALID_ARGUMENT, "has run again", outputs[0]::tensor);
    }
  }

  static void testTensors() {
    equal(Tensor.of(new double[] {1, -2}, 2).doubles(), new double[] {1, -2});
    equal(Tensor.of(new long[] {1L << 40}, 1, 1).longs(), new long[] {1L << 40});
    equal(Tensor.of(new int[] {7}).ints(), new int[] {7});
    equal(Tensor.of(DType.BF16, new byte[] {0, 1}, 1).memory().get(1), (byte) 1);
    equal(Tensor.of(DType.F32, 2, 0, 5).floats(), new float[0]);
    equal(Tensor.of(DType.F32, 3).floats(), new float[3]);
    fails(Status.INVALID_ARGUMENT, "needs 6", () -> Tensor.of(new float[5], 2, 3));
    fails(Status.INVALID_ARGUMENT, "sizes [-1]", () -> Tensor.of(DType.F32, -1));
    fails(Status.INVALID_ARGUMENT, "2 GiB", () -> Tensor.of(DType.F32, 1 << 20, 1 << 20));
    fails(Status.INVALID_ARGUMENT, "2 GiB", () -> Tensor.of(DType.U8, Integer.MAX_VALUE));
    fails(Status.INVALID_ARGUMENT, "no elements", () -> Tensor.of(DType.F32, new byte[3], 1));
  }

  static void testOperator() {
    Session session = program(HuskTest::scale).session();
    Output[] outputs = session.run("scale", Tensor.of(new float[] {1, -2, 3}, 3), 2.5);
    equal(outputs[0].floats(), new float[] {2.5f, -5, 7.5f});
    equal(session.run("scale", Tensor.of(new float[] {1}, 1), 2f)[0].floats(), new float[] {2});
  }

  static void testOperatorThatFails() {
    AtomicInteger calls = new AtomicInteger();
    Session session =
        program(
                arguments -> {
                  switch (calls.incrementAndGet()) {
                    case 1:
                      throw new HuskException(Status.LIMIT, "é".repeat(200));
                    case 2:
                      arguments[0].memory(DType.I64);
                      break;
                    case 3:
                      arguments[1].memory(DType.F32);
                      break;
                    default:
                      throw new IllegalStateException("an exception of the test");
                  }
                })
            .session();
    Tensor x = Tensor.of(new float[] {1}, 1);
    fails(Status.LIMIT, "éé", () -> session.run(1, x, 1.0));
    fails(Status.INVALID_ARGUMENT, "used as i64", () -> session.run(1, x, 1.0));
    fails(Status.INVALID_ARGUMENT, "no tensor", () -> session.run(1, x, 1.0));
    fails(Status.KERNEL, "an exception of the test", () -> session.run(1, x, 1.0));
    try {
      session.run(1, x, 1.0);
    } catch (HuskException failure) {
      equal(failure.step(), 0);
      equal(failure.driverCode(), 0);
    }
  }

  static void testState() {
    Program program = program(HuskTest::scale);
    Session one = program.session();
    Session two = program.session();
    Tensor rows = Tensor.of(new long[] {1, 3, 1}, 3);
    Tensor x = Tensor.of(new float[] {2, 5}, 1, 2);
    equal(one.run(2, rows, x)[0].integer(), 3L);
    equal(one.getState("total").floats(), new float[] {0, 0, 4, 10, 0, 0, 2, 5});
    equal(two.getState("total").floats(), new float[8]);
    two.copyState("total", one);
    equal(two.getState("total").floats(), new float[] {0, 0, 4, 10, 0, 0, 2, 5});
    two.setState("total", Tensor.of(new float[] {1, 1, 1, 1, 1, 1, 1, 1}, 4, 2));
    two.run(2, rows, x);
    equal(two.getState("total").floats(), new float[] {1, 1, 5, 11, 1, 1, 3, 6});
    two.resetState("total");
    equal(two.getState("total").floats(), new float[8]);
    String text = "no state 'other': the file has [total]";
    fails(Status.NOT_FOUND, text, () -> one.resetState("other"));
    fails(
        Status.INVALID_ARGUMENT,
        "total is f32 [4, 2], 32 bytes; a tensor of 32 bytes of f64",
        () -> one.setState("total", Tensor.of(new double[4], 4)));
  }

  static void testConstants() {
    Program program = program(HuskTest::scale);
    Session session = program.session();
    program.updateConstant("bias", Tensor.of(new float[] {10, 20}, 2));
    equal(session.run(0, Tensor.of(DType.F32, 1, 3))[0].floats(), new float[] {10, 20});
    Tensor none = Tensor.of(DType.F32, 3);
    fails(Status.NOT_FOUND, "no constant 'none'", () -> program.updateConstant("none", none));
    fails(Status.INVALID_ARGUMENT, "bias is f32", () -> program.updateConstant("bias", none));
    Tensor one = Tensor.of(new float[] {30}, 1);
    program.updateConstantPart("bias", 1, one);
    equal(session.run(0, Tensor.of(DType.F32, 1, 3))[0].floats(), new float[] {10, 30});
    for (long first : new long[] {2, 3, -1, Long.MAX_VALUE}) {
      String text = "no part of constant 'bias', which has 8";
      fails(
          Status.INVALID_ARGUMENT, text, () -> program.updateConstantPart("bias", first, one));
    }
    Tensor wide = Tensor.of(new double[1], 1);
    fails(
        Status.INVALID_ARGUMENT,
        "bias is f32",
        () -> program.updateConstantPart("bias", 0, wide));
  }

  static void testWrongInputs() {
    Session session = program(HuskTest::scale).session();
    Tensor good = Tensor.of(new float[3], 1, 3);
    Object[][] wrong = {
      {},
      {3},
      {Tensor.of(new long[3], 1, 3)},
      {Tensor.of(new float[27], 9, 3)},
      {Tensor.of(new float[8], 2, 4)},
      {Tensor.of(DType.F32, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)},
      {good, good},
      {true},
      {"text"},
      {null},
      {2.5},
    };
    for (Object[] inputs : wrong) {
      try {
        session.run(0, inputs);
        throw new AssertionError("no failure for " + Arrays.toString(inputs));
      } catch (HuskException failure) {
        boolean known =
            failure.status() == Status.INVALID_INPUT
                || failure.status() == Status.INVALID_ARGUMENT;
        equal(known, true);
      }
      session.run(0, good);
    }
    fails(Status.INVALID_ARGUMENT, "function 7 of 3", () -> session.run(7, good));
    session.setRange(0, 0, 0, 1, 2);
    fails(Status.INVALID_INPUT, "x", () -> session.run(0, Tensor.of(new float[9], 3, 3)));
    session.resize(0, good);
    session.close();
    session.close();
    fails(Status.INVALID_ARGUMENT, "closed", () -> session.run(0, good));
    fails(Status.INVALID_ARGUMENT, "closed", () -> session.getState("total"));
  }

  static void testHandles() {
    Engine engine = new Engine();
    engine.addOperator("test::scale", "x factor y:w", HuskTest::scale);
    Program program = engine.open(ARTIFACT);
    Session session = program.session();
    engine.close();
    program.close();
    Output output = session.run(0, Tensor.of(new float[3], 1, 3))[0];
    fails(Status.INVALID_ARGUMENT, "closed", () -> engine.open(ARTIFACT));
    fails(Status.INVALID_ARGUMENT, "closed", program::session);
    session.close();
    fails(Status.INVALID_ARGUMENT, "closed", output::tensor);
    for (int i = 0; i < 200; ++i) {
      program(HuskTest::scale).session().run(0, Tensor.of(new float[3], 1, 3));
    }
    for (int i = 0; i < 5; ++i) System.gc();
  }

  static void testBadFiles() throws Exception {
    Engine engine = new Engine();
    fails(Status.IO, "nowhere", () -> engine.open(Path.of("/nowhere.husk")));
    byte[] bytes = Files.readAllBytes(ARTIFACT);
    fails(Status.NOT_FOUND, "test::scale", () -> engine.load(bytes));
    fails(Status.INVALID_FILE, "", () -> engine.load(Arrays.copyOf(bytes, bytes.length / 2)));
    fails(Status.INVALID_FILE, "", () -> engine.load(new byte[0]));
    engine.addOperator("test::scale", "x factor y:w", HuskTest::scale);
    equal(engine.load(bytes).functions().size(), 3);
    fails(
        Status.INVALID_ARGUMENT,
        "",
        () -> engine.addOperator("test::scale", "x factor x:w:w", HuskTest::scale));
    fails(Status.INVALID_ARGUMENT, "NUL", () -> engine.addOperator("a\0b", "x", HuskTest::scale));
  }

  static void testThreads() throws Exception {
    Program program = program(HuskTest::scale);
    Session shared = program.session();
    List<Thread> threads = new ArrayList<>();
    List<Throwable> failures = java.util.Collections.synchronizedList(new ArrayList<>());
    for (int number = 0; number < 4; ++number) {
      final int first = number * 1000;
      final Session session = number < 2 ? program.session() : shared;
      Thread thread =
          new Thread(
              () -> {
                try {
                  for (int i = 0; i < 1000; ++i) {
                    float x = first + i;
                    Output[] outputs = session.run(0, Tensor.of(new float[] {x, x, x}, 1, 3));
                    if (session == shared) continue;
                    equal(outputs[0].floats(), new float[] {4 * x + 0.5f, 3 * x - 0.5f});
                  }
                } catch (Throwable failure) {
                  failures.add(failure);
                }
              });
      threads.add(thread);
      thread.start();
    }
    program.close();
    for (Thread thread : threads) thread.join();
    equal(failures, List.of());
  }

  static void testCallbacks() {
    AtomicBoolean stop = new AtomicBoolean();
    Engine.Options options =
        new Engine.Options()
            .threads(2)
            .verifyContent()
            .cancel(
                () -> {
                  if (stop.get()) throw new IllegalStateException("a question that fails is a yes");
                  return false;
                })
            .log((warning, text) -> {});
    Engine engine = new Engine(options);
    engine.addOperator("test::scale", "x factor y:w", HuskTest::scale);
    Session session = engine.open(ARTIFACT).session();
    Tensor x = Tensor.of(new float[3], 1, 3);
    session.run(0, x);
    stop.set(true);
    fails(Status.CANCELLED, "", () -> session.run(0, x));
    stop.set(false);
    session.run(0, x);
    fails(Status.INVALID_ARGUMENT, "0 threads", () -> new Engine(new Engine.Options().threads(0)));
  }

  private static void time(String file, int count) {
    Engine engine = new Engine(new Engine.Options().allowHostImages());
    Program program = engine.open(Path.of(file));
    Session session = program.session();
    Object[] inputs =
        program.inputs(0).stream()
            .map(
                info -> {
                  long[] sizes = info.ranges().stream().mapToLong(ValueInfo.Range::min).toArray();
                  Tensor tensor = Tensor.of(info.dtype(), sizes);
                  FloatBuffer elements = tensor.memory().asFloatBuffer();
                  while (elements.hasRemaining()) elements.put(1);
                  return tensor;
                })
            .toArray();
    long best = Long.MAX_VALUE;
    for (int round = 0; round < 20; ++round) {
      long begin = System.nanoTime();
      for (int i = 0; i < count; ++i) session.run(0, inputs);
      best = Math.min(best, System.nanoTime() - begin);
    }
    System.out.println(best / count);
  }
}
