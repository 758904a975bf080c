import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** A member of a group with Apache Kafka's own consumer; see tests/integration/groups/member_process.py. */
public class GroupMember {
    private static final List<String> ASSIGNORS =
        List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor");
    private static volatile boolean isEnded;

    public static void main(String[] arguments) {
        String options = arguments[0];
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isEnded = true;
            try {
                closed.await(20, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            // Otherwise the exit code is that of the signal.
            Runtime.getRuntime().halt(0);
        }));
        try (KafkaConsumer<byte[], String> consumer = new KafkaConsumer<>(settings(options))) {
            consumer.subscribe(List.of(option(options, "topic")));
            String last = null;
            while (!isEnded) {
                ConsumerRecords<byte[], String> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty())
                    commit(consumer, records);
                String assigned = consumer.assignment().stream().map(TopicPartition::partition).sorted()
                    .map(String::valueOf).collect(Collectors.joining(", "));
                if (!assigned.equals(last))
                    tell("{\"assigned\": [" + assigned + "]}");
                last = assigned;
            }
        } finally {
            closed.countDown();
        }
    }

    private static Properties settings(String options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", option(options, "bootstrap"));
        settings.put("group.id", option(options, "group"));
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if ("consumer".equals(option(options, "protocol"))) {
            settings.put("group.protocol", "consumer");
        } else {
            String assignor = option(options, "assignor").replace("-", "") + "assignor";
            settings.put("session.timeout.ms", option(options, "session_ms"));
            settings.put("heartbeat.interval.ms", "200");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + ASSIGNORS.stream().filter(assignor::equalsIgnoreCase).findFirst().orElseThrow());
        }
        return settings;
    }

    private static void commit(KafkaConsumer<byte[], String> consumer, ConsumerRecords<byte[], String> records) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException error) {
            tell("{\"refused\": \"" + error.getClass().getSimpleName() + "\"}");
            return;
        }
        StringBuilder lines = new StringBuilder();
        records.forEach(each -> lines.append(lines.isEmpty() ? "" : ", ").append(
            "[" + each.partition() + ", " + each.offset() + ", \"" + each.value() + "\"]"));
        tell("{\"records\": [" + lines + "]}");
    }

    /** The values are plain words and numbers: no JSON library is needed. */
    private static String option(String options, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"?([^\",}]*)").matcher(options);
        return found.find() ? found.group(1) : null;
    }

    private static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
