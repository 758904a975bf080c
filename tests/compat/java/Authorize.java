import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Asks Apache Kafka's AclAuthorizer, which reads the ACLs from ZooKeeper.
 *
 * The arguments are the address of ZooKeeper, the super users and allow.everyone.if.no.acl.found. Input: "set
 * CHROOT" loads other ACLs; "one USER HOST OPERATION TYPE NAME" and "any USER HOST OPERATION TYPE" ask. Output: a
 * line with ALLOWED or DENIED for each question.
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
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("set")) {
                if (authorizer != null)
                    authorizer.close();
                Map<String, Object> config = new HashMap<>();
                config.put("zookeeper.connect", args[0] + words[1]);
                config.put("super.users", args[1]);
                config.put("allow.everyone.if.no.acl.found", args[2]);
                authorizer = new AclAuthorizer();
                authorizer.configure(config);
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
