import husk.Engine;
import husk.HuskException;
import husk.Output;
import husk.Program;
import husk.Session;
import husk.Tensor;
import java.nio.file.Path;
import java.util.Locale;

/**
 * Runs mlp.husk on the CPU, as examples/hello does in C: four rows of 32 numbers, and for each row
 * the ten numbers that the model returns.
 */
final class Main {
  private Main() {}

  public static void main(String[] arguments) {
    Path path = Path.of(arguments.length > 0 ? arguments[0] : "mlp.husk");
    // The file holds native code: open only files that you trust.
    try (Engine engine = new Engine(new Engine.Options().allowHostImages());
        Program program = engine.open(path);
        Session session = program.session()) {
      float[] x = new float[4 * 32];
      for (int i = 0; i < x.length; ++i) x[i] = 0.01f * i;
      Output y = session.run(0, Tensor.of(x, 4, 32))[0];
      float[] numbers = y.floats();
      int columns = (int) y.sizes()[1];
      for (int i = 0; i < numbers.length; ++i) {
        System.out.printf(Locale.ROOT, " %7.4f", numbers[i]);
        if (i % columns == columns - 1) System.out.println();
      }
    } catch (HuskException failure) {
      System.err.println(failure.getMessage());
      System.exit(1);
    }
  }
}
