import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Runs Java's assignors on the cases of tests/assignor_cases.py, read from stdin, and prints what they assign. */
public class Assignments {
    private static final Map<String, Node> NODES = new HashMap<>();
    private static List<PartitionInfo> partitions = new ArrayList<>();
    private static Map<String, Subscription> subscriptions = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        ConsumerPartitionAssignor assignor = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "assignor" -> assignor = assignor(words[1]);
                case "topic" -> readTopic(words);
                case "member" -> readMember(words);
                case "end" -> {
                    output.append(assign(assignor));
                    partitions = new ArrayList<>();
                    subscriptions = new HashMap<>();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(output);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static void readTopic(String[] words) {
        for (int number = 0; number < words.length - 2; number++) {
            Node[] replicas = words[number + 2].equals("-")
                ? new Node[] {NODES.computeIfAbsent("-", rack -> new Node(0, "localhost", 9092))}
                : Arrays.stream(words[number + 2].split("\\+"))
                    .map(rack -> NODES.computeIfAbsent(rack, r -> new Node(NODES.size() + 1, "localhost", 9092, r)))
                    .toArray(Node[]::new);
            partitions.add(new PartitionInfo(words[1], number, replicas[0], replicas, replicas));
        }
    }

    private static void readMember(String[] words) {
        Map<String, String> fields = new HashMap<>();
        for (String word : Arrays.copyOfRange(words, 2, words.length))
            fields.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        List<TopicPartition> owned = new ArrayList<>();
        for (String name : list(fields.get("owned"))) {
            int dash = name.lastIndexOf('-');
            owned.add(new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1))));
        }
        String data = fields.get("data");
        Subscription subscription = new Subscription(
            list(fields.get("topics")),
            data == null ? null : ByteBuffer.wrap(HexFormat.of().parseHex(data)),
            owned,
            Integer.parseInt(fields.getOrDefault("generation", "-1")),
            Optional.ofNullable(fields.get("rack")));
        subscription.setGroupInstanceId(Optional.ofNullable(fields.get("instance")));
        subscriptions.put(words[1], subscription);
    }

    private static List<String> list(String text) {
        return text == null || text.isEmpty() ? List.of() : Arrays.asList(text.split(","));
    }

    private static String assign(ConsumerPartitionAssignor assignor) {
        Cluster cluster = new Cluster("c", NODES.values(), partitions, java.util.Set.of(), java.util.Set.of());
        Map<String, Assignment> assigned;
        try {
            assigned = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        } catch (RuntimeException error) {
            return "failed: " + error + "\n\n";
        }
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Assignment> entry : new TreeMap<>(assigned).entrySet()) {
            text.append(entry.getKey()).append(":");
            for (TopicPartition partition : entry.getValue().partitions())
                text.append(" ").append(partition);
            text.append("\n");
        }
        return text + "\n";
    }
}
