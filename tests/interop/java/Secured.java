import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's clients at secured brokers: `Secured FILE` with cells as secured_cells.py makes them, all at a time. */
public final class Secured {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (JsonNode cell : JSON.readTree(new File(arguments[0]))) {
            Thread thread = new Thread(() -> tell(cell));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void tell(JsonNode cell) {
        Object told;
        try {
            told = echo(cell);
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            told = Map.of("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        try {
            System.out.println(JSON.writeValueAsString(Map.of("step", cell.get("name").asText(), "told", told)));
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Sends record after record and reads each of them back in a group, then commits. */
    private static Map<String, Object> echo(JsonNode cell) throws Exception {
        String topic = cell.get("topic").asText();
        Properties given = new Properties();
        cell.get("properties").properties().forEach(one -> given.put(one.getKey(), one.getValue().asText()));
        Properties sending = (Properties) given.clone();
        sending.put("max.block.ms", "120000");
        Properties reading = (Properties) given.clone();
        reading.putAll(Map.of("group.id", topic, "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        int count = cell.get("count").asInt();
        long until = System.nanoTime();
        int number = 0;
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(sending, new StringSerializer(), new StringSerializer());
             KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             Admin admin = Admin.create(given)) {
            consumer.subscribe(List.of(topic));
            for (; number < count || System.nanoTime() < until; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number))).get();
                for (boolean read = false; !read;) {
                    for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                        // a member whose connection ended may begin again
                        if (!one.value().equals(String.valueOf(one.offset())) || one.offset() > number) {
                            throw new IllegalStateException(one + " instead of " + number);
                        }
                        read |= one.offset() == number;
                    }
                }
                if (number == count - 1) {
                    until = System.nanoTime() + (long) (cell.get("seconds").asDouble() * 1e9);
                } else if (number >= count) {
                    Thread.sleep(20);
                }
            }
            consumer.commitSync();
            long committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
                .get(new TopicPartition(topic, 0)).offset();
            return Map.of("echoed", number, "committed", committed);
        }
    }
}
