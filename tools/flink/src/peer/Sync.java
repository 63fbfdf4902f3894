package peer;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.paimon.flink.action.cdc.kafka.KafkaSyncTableAction;

/** Paimon's kafka_sync_table. Arguments: servers, topic, warehouse, columns (not used: it makes its own), option=value … */
public final class Sync {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        String warehouse = arguments[2];
        String group = "sync-" + System.nanoTime();
        Map<String, String> options = new HashMap<>(Map.of("sink.parallelism", "2"));
        for (int i = 4; i < arguments.length; i++) {
            String[] option = arguments[i].split("=", 2);
            options.put(option[0], option[1]);
        }
        Map<String, String> source = Map.of(
                "properties.bootstrap.servers", servers, "topic", topic, "value.format", "debezium-json",
                "properties.group.id", group, "scan.startup.mode", "earliest-offset");
        StreamExecutionEnvironment environment = Meter.environment();
        KafkaSyncTableAction action =
                new KafkaSyncTableAction("bench", "orders", Map.of("warehouse", warehouse), source);
        action.withPrimaryKeys("id").withTableConfig(options);
        action.withStreamExecutionEnvironment(environment).build();
        Meter.measure(
                environment.executeAsync("sync"), servers, topic, group, Path.of(warehouse, "bench.db", "orders"));
    }
}
