import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Java's assignors on groups that somebody else describes, in the bytes that travel.
 *
 * A group is the lines `assignor NAME`, `topic NAME SIZE` …, `member ID INSTANCE SUBSCRIPTION` … (base64; an instance
 * of `-` is none) and an empty one. The answer is a line `ID ASSIGNMENT` for each member, and an empty one.
 */
public final class Assignors {
    private static final Node BROKER = new Node(1, "localhost", 9092);

    public static void main(String[] unused) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ConsumerPartitionAssignor assignor = null;
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new TreeMap<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "assignor" -> assignor = named(words[1]);
                case "topic" -> {
                    Node[] replicas = {BROKER};
                    for (int index = 0; index < Integer.parseInt(words[2]); index++) {
                        partitions.add(new PartitionInfo(words[1], index, BROKER, replicas, replicas));
                    }
                }
                case "member" -> {
                    ByteBuffer told = ByteBuffer.wrap(Base64.getDecoder().decode(words[3]));
                    Subscription subscription = ConsumerProtocol.deserializeSubscription(told);
                    subscription.setGroupInstanceId(
                        words[2].equals("-") ? Optional.empty() : Optional.of(words[2]));
                    members.put(words[1], subscription);
                }
                default -> {
                    answer(assignor, partitions, members);
                    partitions = new ArrayList<>();
                    members = new TreeMap<>();
                }
            }
        }
    }

    private static void answer(
            ConsumerPartitionAssignor assignor, List<PartitionInfo> partitions, Map<String, Subscription> members) {
        Cluster cluster = new Cluster("c", List.of(BROKER), partitions, Set.of(), Set.of());
        Map<String, Assignment> shares = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        shares.forEach((id, share) -> {
            ByteBuffer told = ConsumerProtocol.serializeAssignment(share);
            byte[] bytes = new byte[told.remaining()];
            told.get(bytes);
            System.out.println(id + " " + Base64.getEncoder().encodeToString(bytes));
        });
        System.out.println();
    }

    private static ConsumerPartitionAssignor named(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }
}
