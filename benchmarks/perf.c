/* Load generator on librdkafka: perf P|C BOOTSTRAP TOPIC PARTITION COUNT SIZE ACKS [key=value ...]
 *
 * P produces COUNT records of SIZE bytes to one partition, or in turn to partitions 0..N-1 when PARTITION
 * is -N; with rate=R not faster than R records/s. C reads COUNT records from the beginning of one
 * partition. Prints one JSON line. The clock of a consumer starts with its first records, so that metadata
 * and connecting are not measured. Memory that was freed is used again and not given back to the kernel:
 * whether an allocator gives it back differs by chance between runs, and new pages take a third of the time. */
#include <librdkafka/rdkafka.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_S 90

static long delivered, failed, rate;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (!message->err) {
        delivered++;
    } else if (!failed++) {
        fprintf(stderr, "%s\n", rd_kafka_err2str(message->err));
    }
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
}

static double produce(rd_kafka_t *rk, const char *topic, int partition, long count, size_t size) {
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, handle, &metadata, 10000);
    if (error) {
        fprintf(stderr, "metadata: %s\n", rd_kafka_err2str(error));
        exit(1);
    }
    char *payload = malloc(size);
    for (size_t i = 0; i < size; i++) payload[i] = (char)('a' + (i * 7 + i / 13) % 26);
    double started = now();
    for (long i = 0; i < count; i++) {
        int where = partition < 0 ? (int)(i / 100 % -partition) : partition;
        while (rd_kafka_produce(handle, where, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL) == -1)
            rd_kafka_poll(rk, 5);
        if (i % 2000 == 0) rd_kafka_poll(rk, 0);
        if (rate && i % 100 == 0) {
            double ahead = started + (double)i / rate - now();
            if (ahead > 0) usleep((useconds_t)(ahead * 1e6));
        }
    }
    rd_kafka_flush(rk, DEADLINE_S * 1000);
    return started;
}

static double consume(rd_kafka_t *rk, const char *topic, int partition, long count, long *done, double *bytes) {
    rd_kafka_topic_partition_list_t *assigned = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(assigned, topic, partition)->offset = 0;
    rd_kafka_assign(rk, assigned);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    rd_kafka_message_t *messages[10000];
    double started = 0, deadline = now() + DEADLINE_S;
    while (*done < count && now() < deadline) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 500, messages, 10000);
        if (got > 0 && started == 0) started = now();
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) {
                ++*done;
                *bytes += messages[i]->len;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return started;
}

int main(int n, char **a) {
    if (n < 8) {
        fprintf(stderr, "perf P|C BOOTSTRAP TOPIC PARTITION COUNT SIZE ACKS [key=value ...]\n");
        return 2;
    }
    int producing = a[1][0] == 'P', partition = atoi(a[4]);
    long count = atol(a[5]), done = 0;
    size_t size = (size_t)atol(a[6]);
    double bytes = 0;
    char error[256];
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", a[2]);
    if (producing) {
        set(conf, "acks", a[7]);
        set(conf, "linger.ms", "5");
        set(conf, "batch.size", "1000000");
        set(conf, "queue.buffering.max.messages", "500000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    } else {
        set(conf, "group.id", "perf");
        set(conf, "enable.auto.commit", "false");
        set(conf, "auto.offset.reset", "earliest");
        set(conf, "queued.min.messages", "300000");
        set(conf, "fetch.message.max.bytes", "4000000");
    }
    for (int i = 8; i < n; i++) {
        char *equals = strchr(a[i], '=');
        if (!equals) {
            fprintf(stderr, "not key=value: %s\n", a[i]);
            return 2;
        }
        *equals = 0;
        if (strcmp(a[i], "rate") == 0)
            rate = atol(equals + 1);
        else
            set(conf, a[i], equals + 1);
    }
    rd_kafka_t *rk = rd_kafka_new(producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (!rk) {
        fprintf(stderr, "%s\n", error);
        return 2;
    }
    double started;
    if (producing) {
        started = produce(rk, a[3], partition, count, size);
        done = delivered;
        bytes = (double)done * size;
    } else {
        started = consume(rk, a[3], partition, count, &done, &bytes);
    }
    double seconds = now() - started;
    printf("{\"records\": %ld, \"failed\": %ld, \"seconds\": %.4f, \"records_per_s\": %.0f, \"mb_per_s\": %.2f}\n",
           done, failed, seconds, done / seconds, bytes / seconds / 1e6);
    fflush(stdout);
    _exit(done == count && !failed ? 0 : 1);
}
