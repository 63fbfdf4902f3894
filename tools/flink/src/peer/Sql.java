package peer;

import java.nio.file.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** INSERT INTO a table SELECT * FROM a topic of debezium-json. Arguments: servers, topic, warehouse, columns, option=value … */
public final class Sql {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        String warehouse = arguments[2];
        String columns = arguments[3] + ", PRIMARY KEY (id) NOT ENFORCED";
        String group = "sql-" + System.nanoTime();
        StringBuilder options = new StringBuilder("'sink.parallelism'='2'");
        for (int i = 4; i < arguments.length; i++) {
            String[] option = arguments[i].split("=", 2);
            options.append(String.format(", '%s'='%s'", option[0], option[1]));
        }
        StreamExecutionEnvironment environment = Meter.environment();
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.getConfig().set("table.exec.sink.upsert-materialize", "NONE");
        tables.executeSql("CREATE CATALOG p WITH ('type'='paimon', 'warehouse'='" + warehouse + "')");
        tables.executeSql("CREATE DATABASE IF NOT EXISTS p.bench");
        tables.executeSql("CREATE TABLE p.bench.orders (" + columns + ") WITH (" + options + ")");
        tables.executeSql("CREATE TEMPORARY TABLE k (" + columns + ") WITH ('connector'='kafka', 'topic'='" + topic
                + "', 'properties.bootstrap.servers'='" + servers + "', 'properties.group.id'='" + group
                + "', 'scan.startup.mode'='earliest-offset', 'format'='debezium-json'"
                + ", 'debezium-json.timestamp-format.standard'='SQL')");
        Meter.measure(
                tables.executeSql("INSERT INTO p.bench.orders SELECT * FROM k").getJobClient().get(),
                servers, topic, group, Path.of(warehouse, "bench.db", "orders"));
    }
}
