import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one process, which is a second
 * less for each than a process of its own. Each line of its input is a command: the
 * tool's class, its arguments, and behind "<<<", if it is there, its standard input with
 * "\n" for the ends of lines, all apart by tabs. Of each it writes the lines that the
 * tool wrote and, last, "exit " with its code.
 */
public class Tools {
  /** Left ends a tool that wants to end the process; some tools catch it and leave again. */
  static class Left extends Error {
    final int code;

    Left(int code) {
      super(null, null, false, false);
      this.code = code;
    }
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    Exit.setExitProcedure((code, message) -> leave(code));
    Exit.setHaltProcedure((code, message) -> leave(code));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      List<String> command = new ArrayList<>(Arrays.asList(line.split("\t")));
      int at = command.indexOf("<<<");
      String input = at < 0 ? "" : command.get(at + 1).replace("\\n", "\n").replace("\\t", "\t");
      if (at >= 0) {
        command = command.subList(0, at);
      }
      System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
      ByteArrayOutputStream said = new ByteArrayOutputStream();
      PrintStream to = new PrintStream(said, true, StandardCharsets.UTF_8);
      System.setOut(to);
      System.setErr(to);
      int code = run(command.get(0), command.subList(1, command.size()).toArray(String[]::new), to);
      out.print(said.toString(StandardCharsets.UTF_8));
      out.println((said.size() == 0 || said.toString(StandardCharsets.UTF_8).endsWith("\n") ? "" : "\n") + "exit " + code);
      out.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  private static Left first;

  private static void leave(int code) {
    if (first == null) {
      first = new Left(code);
    }
    throw first;
  }

  static int run(String tool, String[] args, PrintStream to) {
    first = null;
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
      return 0;
    } catch (Throwable e) {
      if (first != null) {
        return first.code;
      }
      e.printStackTrace(to);
      return 1;
    }
  }
}
