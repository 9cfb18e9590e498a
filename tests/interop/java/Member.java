import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of somebody else's group: `Member BOOTSTRAP TOPIC GROUP [KEY=VALUE …]`. It prints its partitions whenever
 * they change and the value of every record, and leaves when it is sent a line.
 */
public final class Member {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[2]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "100");
        for (String setting : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> gone) { }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> more) {
                    tell("assigned", consumer.assignment().stream().map(TopicPartition::partition).sorted()
                        .map(String::valueOf).collect(Collectors.joining(",", "[", "]")));
                }
            });
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    tell("record", "\"" + record.value() + "\"");
                }
                consumer.commitAsync(); // refused during a rebalance: the next owner reads them again
            }
        }
    }

    private static void tell(String step, String told) {
        System.out.println("{\"step\": \"" + step + "\", \"told\": " + told + "}");
    }
}
