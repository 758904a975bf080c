import java.io.DataInputStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Converts records as Apache Kafka's broker does, and prints what became of each record.
 *
 * Input, repeated: 'p' (as a leader appends them, from offset 100 on) or 'f' (as they are fetched), the magic
 * to convert to, the size in four bytes, the records. Output: a line for each record, an empty line behind
 * each conversion; "error" with the exception's name where there is one.
 */
public class Conversions {
    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    };

    static Records produced(MemoryRecords records, byte magic) {
        RecordBatch first = records.batches().iterator().next();
        CompressionType codec = first.compressionType();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM, codec,
            Compression.of(codec).build(), false, magic, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 5,
            AppendOrigin.CLIENT, MetadataVersion.latestTesting());
        return validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(100), NO_METRICS, BufferSupplier.NO_CACHING).validatedRecords;
    }

    static String hex(ByteBuffer data) {
        if (data == null)
            return "null";
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return "x" + HexFormat.of().formatHex(bytes);
    }

    static void print(Records records) {
        for (RecordBatch batch : records.batches())
            for (Record record : batch) {
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers())
                    headers.append(' ').append(header.key());
                System.out.println(batch.magic() + " " + record.offset() + " " + record.timestamp() + " "
                    + batch.timestampType().id + " " + hex(record.key()) + " " + hex(record.value()) + headers);
            }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream input = new DataInputStream(System.in);
        while (true) {
            int kind = input.read();
            if (kind < 0)
                return;
            byte magic = input.readByte();
            byte[] bytes = new byte[input.readInt()];
            input.readFully(bytes);
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            try {
                print(kind == 'p' ? produced(records, magic)
                    : records.downConvert(magic, 0L, Time.SYSTEM).records());
            } catch (Exception error) {
                System.out.println("error " + error.getClass().getSimpleName());
            }
            System.out.println();
        }
    }
}
