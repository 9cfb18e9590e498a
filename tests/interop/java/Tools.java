import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Kafka's command-line tools in one JVM, since starting one costs a second.
 *
 * Each line read is a call: fields in base64, separated by blanks: class name, standard input, arguments. Each line
 * written is its outcome: exit code, standard output, standard error. A tool that wants to exit ends only itself.
 */
public final class Tools {
    /** Unwinds a tool that exits; some catch it and exit again, so the first code is the one that counts. */
    private static final class Ended extends RuntimeException { }

    private static Integer exitCode;

    /** What the tool wanted run when its JVM ends: the console producer flushes there. */
    private static final List<Runnable> hooks = new ArrayList<>();

    private static void end(int code, String message) {
        if (exitCode == null) {
            exitCode = code;
            if (message != null) {
                System.err.println(message);
            }
        }
        throw new Ended();
    }

    public static void main(String[] unused) throws Exception {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream outcomes = System.out;
        PrintStream log = System.err;
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] fields = Arrays.stream(line.split(" ", -1)).map(Tools::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(fields[1].getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(fields[0], Arrays.copyOfRange(fields, 2, fields.length));
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            System.err.flush();
            System.setOut(outcomes);
            System.setErr(log);
            outcomes.println(code + " " + encoded(out) + " " + encoded(err));
            outcomes.flush();
        }
    }

    private static int run(String tool, String[] arguments) {
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (exitCode == null) {
                failure.getCause().printStackTrace(System.err);
                return 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace(System.err);
            return 127;
        }
        return exitCode == null ? 0 : exitCode;
    }

    private static String decoded(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
