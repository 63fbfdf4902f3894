package peer;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Metric;
import org.apache.flink.metrics.MetricConfig;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.reporter.MetricReporter;
import org.apache.flink.metrics.reporter.MetricReporterFactory;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;

/**
 * A local Flink, and a clock that runs from the first record until every record of a topic is committed: the consumer
 * group's offsets are the topic's ends, and no newer snapshot appears.
 */
public final class Meter implements MetricReporter, MetricReporterFactory {
    private static final Map<String, Counter> RECORDS_IN = new ConcurrentHashMap<>();
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final int QUIET_TICKS = 30;
    private static final int TICK_MS = 100;

    @Override
    public MetricReporter createMetricReporter(Properties properties) {
        return this;
    }

    @Override
    public void open(MetricConfig config) {}

    @Override
    public void close() {}

    @Override
    public void notifyOfAddedMetric(Metric metric, String name, MetricGroup group) {
        String id = group.getMetricIdentifier(name);
        boolean isSource = id.contains("ource") && !id.contains("KafkaSourceReader");
        if (metric instanceof Counter && name.equals("numRecordsIn") && isSource) {
            RECORDS_IN.put(id, (Counter) metric);
        }
    }

    @Override
    public void notifyOfRemovedMetric(Metric metric, String name, MetricGroup group) {}

    static StreamExecutionEnvironment environment() {
        Configuration settings = new Configuration();
        settings.setString("metrics.reporters", "m");
        settings.setString("metrics.reporter.m.factory.class", Meter.class.getName());
        settings.setString("execution.checkpointing.max-concurrent-checkpoints", "1");
        settings.setString("taskmanager.memory.managed.size", "256mb");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment.enableCheckpointing(Long.getLong("checkpoint.interval.ms"));
        return environment;
    }

    /** Waits for the job, and tells what it cost without its start as the last line of standard output. */
    static void measure(JobClient job, String servers, String topic, String group, Path table) throws Exception {
        double startWall = -1;
        double startCpu = 0;
        long end;
        try (AdminClient admin = AdminClient.create(Map.of("bootstrap.servers", servers))) {
            end = end(admin, topic);
            for (int tick = 0; tick % 10 != 0 || committed(admin, group) < end; tick++) {
                Thread.sleep(TICK_MS);
                if (startWall < 0 && recordsIn() > 0) {
                    startWall = wall();
                    startCpu = cpu();
                }
            }
        }
        long newest = newestSnapshot(table);
        for (int quiet = 0; quiet < QUIET_TICKS; quiet++) {
            Thread.sleep(TICK_MS);
            long found = newestSnapshot(table);
            if (found != newest) {
                newest = found;
                quiet = 0;
            }
        }
        double wallS = wall() - startWall - QUIET_TICKS * TICK_MS / 1e3;
        System.out.printf(
                "{\"rows\": %d, \"wall_s\": %.2f, \"cpu_s\": %.2f, \"peak_mib\": %d, \"start_cpu_s\": %.2f}%n",
                end, wallS, cpu() - startCpu, peakMib(), startCpu);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Several operators of the source's task count the same stream. */
    private static long recordsIn() {
        Map<String, Long> byOperator = new HashMap<>();
        RECORDS_IN.forEach((id, counter) ->
                byOperator.merge(id.replaceAll("\\.\\d+\\.numRecordsIn$", ""), counter.getCount(), Long::sum));
        return byOperator.values().stream().mapToLong(count -> count).max().orElse(0);
    }

    private static long end(AdminClient admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()
                .forEach(partition -> wanted.put(new TopicPartition(topic, partition.partition()), OffsetSpec.latest()));
        return admin.listOffsets(wanted).all().get().values().stream().mapToLong(found -> found.offset()).sum();
    }

    private static long committed(AdminClient admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
                .filter(Objects::nonNull).mapToLong(offset -> offset.offset()).sum();
    }

    private static long newestSnapshot(Path table) {
        String[] names = table.resolve("snapshot").toFile().list((directory, name) -> name.startsWith("snapshot-"));
        if (names == null) {
            return 0;
        }
        return List.of(names).stream().mapToLong(name -> Long.parseLong(name.substring(9))).max().orElse(0);
    }

    private static double cpu() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }

    private static double wall() {
        return (System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime()) / 1e3;
    }

    private static long peakMib() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream().filter(line -> line.startsWith("VmHWM"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) / 1024).findFirst().orElse(0);
    }
}
