import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/**
 * Encodes and decodes passwords with Apache Kafka's PasswordEncoder.
 *
 * Input: "encode SECRET FACTORY CIPHER BITS ITERATIONS PASSWORD", where FACTORY may be "-" for the default, or
 * "decode SECRET CIPHER TEXT", where CIPHER decides only whether the text is one of GCM. PASSWORD is base64. Output:
 * a line with the encoded text, or with the password in base64.
 */
public class EncodePasswords {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("encode")) {
                String factory = words[2].equals("-") ? null : words[2];
                PasswordEncoder encoder = PasswordEncoder.encrypting(
                    new Password(words[1]), factory, words[3], Integer.parseInt(words[4]), Integer.parseInt(words[5]));
                byte[] password = Base64.getDecoder().decode(words[6]);
                System.out.println(encoder.encode(new Password(new String(password, StandardCharsets.UTF_8))));
            } else {
                PasswordEncoder encoder = PasswordEncoder.encrypting(
                    new Password(words[1]), null, words[2], 128, 4096);
                byte[] password = encoder.decode(words[3]).value().getBytes(StandardCharsets.UTF_8);
                System.out.println(Base64.getEncoder().encodeToString(password));
            }
        }
    }
}
