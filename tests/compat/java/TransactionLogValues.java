import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import java.util.StringJoiner;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/**
 * Reads values of __transaction_state with Apache Kafka's own class, and prints what it found.
 *
 * Input: a value in hexadecimal on each line. Output, for each: the message as text, the tags
 * that the class does not know, and how many bytes were left, with tabs between.
 */
public class TransactionLogValues {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(lines.nextLine()));
            short version = data.getShort();
            TransactionLogValue value = new TransactionLogValue(new ByteBufferAccessor(data), version);
            StringJoiner unknown = new StringJoiner(" ");
            for (RawTaggedField field : value.unknownTaggedFields()) {
                unknown.add(field.tag() + "=" + HexFormat.of().formatHex(field.data()));
            }
            System.out.println(value + "\t" + unknown + "\t" + data.remaining());
        }
    }
}
