import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A transactional copier on Apache Kafka's own clients, for the chaos rounds: consume, produce, commit offsets
 * and output as one. It takes the flags of tests/chaos/copier.py and follows the same rules: abort what can be
 * aborted, begin again with new clients where the old ones are fenced or gave up.
 */
public final class Copier {
    private static final String GROUP = "copiers";
    private static final int SESSION_TIMEOUT_MS = 6_000;
    private static final int HEARTBEAT_INTERVAL_MS = 1_000;
    private static final int TRANSACTION_TIMEOUT_MS = 10_000;
    private static final int RECORDS_MAX = 200;
    private static final int CALL_MS = 5_000;
    private static final int ATTEMPTS = 3;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration CLOSE = Duration.ofSeconds(2);
    private static final int PAUSE_MS = 200;

    private final Map<String, String> options;
    private KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;

    private Copier(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            options.put(arguments[at].substring("--".length()), arguments[at + 1]);
        }
        Copier copier = new Copier(options);
        while (true) {
            try {
                copier.copyUntilFailure();
            } catch (KafkaException | IllegalStateException failure) {
                copier.say("begins again: " + failure);
            } finally {
                copier.close();
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private void say(String text) {
        System.err.printf("%s copier %s (%d): %s%n",
            Instant.now(), options.get("number"), ProcessHandle.current().pid(), text);
    }

    private void copyUntilFailure() {
        producer = new KafkaProducer<>(producerSettings(), new ByteArraySerializer(), new ByteArraySerializer());
        retried(producer::initTransactions);
        consumer = new KafkaConsumer<>(consumerSettings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(options.get("source")));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                copy(records);
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(
                    options.get("target"), record.partition(), record.key(), record.value()));
                ends.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            retried(producer::commitTransaction);
        } catch (KafkaException failure) {
            say("aborts: " + failure);
            // A producer that cannot abort throws; its life is over then.
            retried(producer::abortTransaction);
            goBack();
        }
    }

    /** Read again what the aborted transaction had read. */
    private void goBack() {
        Collection<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.copyOf(assigned));
        for (TopicPartition partition : assigned) {
            OffsetAndMetadata position = committed.get(partition);
            if (position == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, position);
            }
        }
    }

    /** Call again what ran out of time: the client goes on with the same request then. */
    private static void retried(Runnable call) {
        for (int left = ATTEMPTS - 1; ; left--) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                if (left == 0) {
                    throw late;
                }
            }
        }
    }

    private void close() {
        if (consumer != null) {
            try {
                consumer.close(CloseOptions.timeout(CLOSE));
            } catch (KafkaException failure) {
                say("the consumer did not close: " + failure);
            }
            consumer = null;
        }
        if (producer != null) {
            producer.close(Duration.ZERO);
            producer = null;
        }
    }

    private Properties commonSettings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("client.id", "copier-" + options.get("number") + "-" + options.get("life"));
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("request.timeout.ms", CALL_MS);
        settings.put("enable.metrics.push", false);
        return settings;
    }

    private Properties consumerSettings() {
        Properties settings = commonSettings();
        settings.put("group.id", GROUP);
        settings.put("group.protocol", options.get("protocol"));
        if (options.get("protocol").equals("classic")) {
            settings.put("session.timeout.ms", SESSION_TIMEOUT_MS);
            settings.put("heartbeat.interval.ms", HEARTBEAT_INTERVAL_MS);
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        settings.put("max.poll.interval.ms", SESSION_TIMEOUT_MS);
        settings.put("max.poll.records", RECORDS_MAX);
        settings.put("default.api.timeout.ms", CALL_MS);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        return settings;
    }

    private Properties producerSettings() {
        Properties settings = commonSettings();
        settings.put("transactional.id", "copier-" + options.get("number"));
        settings.put("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS);
        settings.put("max.block.ms", CALL_MS);
        settings.put("delivery.timeout.ms", 2 * CALL_MS);
        settings.put("linger.ms", 2);
        return settings;
    }
}
