import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.security.authorizer.AclAuthorizer;
import kafka.zk.ResourceZNode;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.zookeeper.data.Stat;

/**
 * Asks Apache Kafka's AclAuthorizer, which reads the ACLs from ZooKeeper or gets them as the data of znodes.
 *
 * The arguments are the address of ZooKeeper, the super users and allow.everyone.if.no.acl.found. Input: "set
 * CHROOT" starts an authorizer that reads the ACLs below a chroot. "clear" forgets the ACLs that came by "acl
 * PATTERN_TYPE TYPE NAME JSON", which puts the data of one pattern's znode into the authorizer's cache, as a change
 * notification does. "one USER HOST OPERATION TYPE NAME" and "any USER HOST OPERATION TYPE" ask. Output: a line
 * with ALLOWED or DENIED for each question.
 */
public class Authorize {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) {
        try {
            answer(args);
            System.out.flush();
        } catch (Exception error) {
            // The authorizer's threads would keep the JVM alive.
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    static void answer(String[] args) throws Exception {
        AclAuthorizer authorizer = null;
        List<ResourcePattern> cached = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", 6);
            if (words[0].equals("set")) {
                if (authorizer != null)
                    authorizer.close();
                Map<String, Object> config = new HashMap<>();
                config.put("zookeeper.connect", args[0] + words[1]);
                config.put("super.users", args[1]);
                config.put("allow.everyone.if.no.acl.found", args[2]);
                authorizer = new AclAuthorizer();
                authorizer.configure(config);
                cached.clear();
                continue;
            }
            if (words[0].equals("clear")) {
                for (ResourcePattern pattern : cached)
                    authorizer.updateCache(pattern, AclAuthorizer.NoAcls());
                cached.clear();
                continue;
            }
            if (words[0].equals("acl")) {
                ResourcePattern pattern = new ResourcePattern(
                    ResourceType.valueOf(words[2]), words[3], PatternType.valueOf(words[1]));
                byte[] data = words[4].getBytes(StandardCharsets.UTF_8);
                authorizer.updateCache(pattern, ResourceZNode.decode(data, new Stat()));
                cached.add(pattern);
                continue;
            }
            Context context = new Context(new KafkaPrincipal("User", words[1]), InetAddress.getByName(words[2]));
            AclOperation operation = AclOperation.valueOf(words[3]);
            ResourceType type = ResourceType.valueOf(words[4]);
            if (words[0].equals("any"))
                System.out.println(authorizer.authorizeByResourceType(context, operation, type));
            else {
                ResourcePattern pattern = new ResourcePattern(type, words[5], PatternType.LITERAL);
                System.out.println(authorizer.authorize(context, List.of(new Action(operation, pattern, 1, true, true)))
                    .get(0));
            }
        }
    }
}
