// The other side of the golden batches: writes them with Kafka's own classes, and reads batches back as text.
//
//   java -cp 'libs/*' Golden.java write DIRECTORY     two files per codec, java-<codec>.bin and java-large-<codec>.bin
//   java -cp 'libs/*' Golden.java read FILE...        one line per record, after every checksum was checked
//
// libs: kafka-clients 4.3.1 with its lz4, snappy and zstd dependencies, and slf4j-api.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class Golden {
    static final long TIMESTAMP = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            for (CompressionType type : CompressionType.values()) {
                write(Path.of(arguments[1]), type, 1, "java-");
                if (type != CompressionType.NONE) {
                    write(Path.of(arguments[1]), type, 60, "java-large-");
                }
            }
        } else {
            for (String file : Arrays.copyOfRange(arguments, 1, arguments.length)) {
                read(Path.of(file));
            }
        }
    }

    // Record i: no key when i % 3 is 0, no value when i % 5 is 4, two headers when i % 7 is 0, i² ms after the first.
    // The large ones need several blocks of every codec.
    static void write(Path directory, CompressionType type, int factor, String prefix) throws Exception {
        SimpleRecord[] records = new SimpleRecord[40];
        for (int i = 0; i < records.length; i++) {
            byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
            byte[] value = i % 5 == 4 ? null : ("value-" + i + " ").repeat(i * factor).getBytes();
            Header[] headers = i % 7 != 0 ? new Header[0] : new Header[] {
                new RecordHeader("größe", ("" + i).getBytes()), new RecordHeader("none", (byte[]) null)};
            records[i] = new SimpleRecord(TIMESTAMP + (long) i * i, key, value, headers);
        }
        MemoryRecords batch = MemoryRecords.withIdempotentRecords(
            RecordBatch.MAGIC_VALUE_V2, 1234L, Compression.of(type).build(), 77L, (short) 3, 500, 9, records);
        ByteBuffer bytes = batch.buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        Files.write(directory.resolve(prefix + type.name + ".bin"), copy);
    }

    static void read(Path file) throws Exception {
        HexFormat hex = HexFormat.of();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file))).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder line = new StringBuilder();
                line.append(record.offset()).append(' ').append(record.timestamp());
                line.append(' ').append(text(hex, record.key())).append(' ').append(text(hex, record.value()));
                for (Header header : record.headers()) {
                    line.append(' ').append(header.key()).append('=').append(
                        header.value() == null ? "null" : hex.formatHex(header.value()));
                }
                System.out.println(line);
            }
        }
    }

    static String text(HexFormat hex, ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "x" + hex.formatHex(copy);
    }
}
