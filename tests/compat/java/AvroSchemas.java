import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.StringJoiner;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** Answers lines with a schema by its canonical text, and lines with reader, tab, writer by what is incompatible. */
public class AvroSchemas {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream output = new PrintStream(System.out, false, "UTF-8");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                String[] texts = line.split("\t");
                answer = texts.length == 1 ? parsed(texts[0]).toString() : incompatible(texts[0], texts[1]);
            } catch (Exception error) {
                answer = "error: " + String.valueOf(error.getMessage()).replace("\n", " ");
            }
            output.println(answer);
        }
        output.flush();
    }

    private static Schema parsed(String text) {
        Schema.Parser parser = new Schema.Parser(NameValidator.STRICT_VALIDATOR);
        parser.setValidateDefaults(true);
        return parser.parse(text);
    }

    private static String incompatible(String reader, String writer) {
        StringJoiner found = new StringJoiner(" | ");
        SchemaCompatibility.checkReaderWriterCompatibility(parsed(reader), parsed(writer))
            .getResult()
            .getIncompatibilities()
            .forEach(each -> found.add(each.getType() + " " + each.getLocation() + " " + each.getMessage()));
        return found.toString();
    }
}
